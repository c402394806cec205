{{/* Labels of every object of this release. */}}
{{- define "pok.release" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The same, for the metadata of an object. */}}
{{- define "pok.labels" -}}
{{ include "pok.release" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The roles that a process leaves to others. */}}
{{- define "pok.noRole" -}}
{{- range $role := list "deletion" "maintenance" "replication" "subscriptions" "transactions" }}
- --without={{ $role }}
{{- end }}
{{- end }}

{{/*
The pod of one component. A dictionary has
  root: the chart's context
  name, container: the names of the object and of the container
  part: the component's values
  args: the arguments behind `serve --host=0.0.0.0`, YAML
  ports: ports besides http, by name
  grace: seconds to stop
  env: variables before the common ones, YAML
  secrets: more Secrets, each with name, secretName and path
*/}}
{{- define "pok.pod" -}}
{{- $values := .root.Values }}
{{- $tls := dig "tls" "secretName" "" .part }}
{{- $secrets := .secrets | default list }}
{{- if $tls }}
{{- $secrets = append $secrets (dict "name" "tls" "secretName" $tls "path" "/etc/pok-tls") }}
{{- end }}
metadata:
  labels:
    app: {{ .name }}
    {{- include "pok.release" .root | nindent 4 }}
  annotations:
    prometheus.io/scrape: "true"
    prometheus.io/port: "9464"
    {{- if $tls }}
    prometheus.io/scheme: https
    {{- end }}
spec:
  terminationGracePeriodSeconds: {{ .grace }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets: {{ toJson . }}
  {{- end }}
  {{- with .part.podSpec }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  containers:
    - name: {{ .container }}
      image: {{ $values.image.repository }}{{ with $values.image.tag }}:{{ . }}{{ end }}
      {{- with $values.image.pullPolicy }}
      imagePullPolicy: {{ . }}
      {{- end }}
      args:
        - serve
        - --host=0.0.0.0
        {{- .args | trim | nindent 8 }}
        {{- if $tls }}
        - --tls-certificate=/etc/pok-tls/tls.crt
        - --tls-key=/etc/pok-tls/tls.key
        {{- end }}
        {{- range .part.extraArgs }}
        - {{ . | quote }}
        {{- end }}
        - --log-format=json
        - --kafka-config=/etc/pok/client.properties
      env:
        {{- with .env }}
        {{- . | trim | nindent 8 }}
        {{- end }}
        - {name: POK_URL, value: {{ $values.kafka.url | quote }}}
        - {name: POK_LOG_LEVEL, value: {{ $values.logLevel | quote }}}
        {{- with $values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: http, containerPort: 9464}
        {{- range $name, $port := .ports | default dict }}
        - {name: {{ $name }}, containerPort: {{ $port }}}
        {{- end }}
      readinessProbe:
        httpGet: {path: /health/ready, port: http{{ if $tls }}, scheme: HTTPS{{ end }}}
        periodSeconds: 10
        timeoutSeconds: 10
      livenessProbe:
        httpGet: {path: /health/live, port: http{{ if $tls }}, scheme: HTTPS{{ end }}}
        periodSeconds: 30
        timeoutSeconds: 10
      resources:
        {{- toYaml .part.resources | nindent 8 }}
      securityContext:
        {{- toYaml $values.securityContext | nindent 8 }}
      volumeMounts:
        - {name: kafka, mountPath: /etc/pok, readOnly: true}
        {{- range $secrets }}
        - {name: {{ .name }}, mountPath: {{ .path }}, readOnly: true}
        {{- end }}
  volumes:
    - name: kafka
      secret: {secretName: {{ $values.kafka.secretName | quote }}}
    {{- range $secrets }}
    - name: {{ .name }}
      secret: {secretName: {{ .secretName | quote }}}
    {{- end }}
{{- end }}

{{/* A Deployment with its PodDisruptionBudget. The dictionary is that of `pok.pod`, perhaps with annotations. */}}
{{- define "pok.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  labels:
    app: {{ .name }}
    {{- include "pok.labels" .root | nindent 4 }}
  {{- with .annotations }}
  annotations: {{ toJson . }}
  {{- end }}
spec:
  replicas: {{ dig "replicas" 1 .part }}
  selector:
    matchLabels: {app: {{ .name }}}
  template:
    {{- include "pok.pod" . | trim | nindent 4 }}
{{- include "pok.budget" . }}
{{- end }}

{{/* The PodDisruptionBudget of a component; nothing for one without. */}}
{{- define "pok.budget" -}}
{{- if dig "podDisruptionBudget" "enabled" false .part }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  labels:
    app: {{ .name }}
    {{- include "pok.labels" .root | nindent 4 }}
spec:
  maxUnavailable: {{ .part.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels: {app: {{ .name }}}
{{- end }}
{{- end }}
