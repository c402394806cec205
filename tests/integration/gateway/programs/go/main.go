// What a program on Pulsar's Go client does: each command prints a line for each thing that it saw.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/sirupsen/logrus"

	plog "github.com/apache/pulsar-client-go/pulsar/log"
)

const patience = time.Minute

type order struct {
	Number int `json:"number"`
}

func main() {
	url, command, topic := os.Args[1], os.Args[2], os.Args[3]
	quiet := logrus.New()
	quiet.SetLevel(logrus.ErrorLevel)
	client := must(pulsar.NewClient(pulsar.ClientOptions{
		URL:               url,
		OperationTimeout:  patience,
		Logger:            plog.NewLoggerWithLogrus(quiet),
		EnableTransaction: command == "transaction",
	}))
	defer client.Close()
	switch command {
	case "produce":
		produce(client, topic, number(4), os.Args[5] == "batches")
	case "consume":
		consume(client, topic, os.Args[5], number(4))
	case "read":
		read(client, topic, number(4))
	case "view":
		view(client, topic)
	case "schema":
		schema(client, topic, number(4))
	case "flow":
		flow(client, topic, os.Args[4], os.Args[5])
	case "transaction":
		transaction(client, topic, os.Args[4])
	default:
		panic(command)
	}
}

// produce sends so many messages with keys and properties, in batches or one by one.
func produce(client pulsar.Client, topic string, messages int, batches bool) {
	producer := must(client.CreateProducer(pulsar.ProducerOptions{
		Topic: topic, DisableBatching: !batches, CompressionType: pulsar.ZSTD,
	}))
	defer producer.Close()
	for number := range messages {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{
			Payload:    []byte(strconv.Itoa(number)),
			Key:        fmt.Sprintf("key-%d", number%3),
			Properties: map[string]string{"number": strconv.Itoa(number)},
		}, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { check(err) })
	}
	check(producer.Flush())
	say("sent", messages)
}

// consume refuses each message once and acknowledges it when it comes again.
func consume(client pulsar.Client, topic, kind string, messages int) {
	types := map[string]pulsar.SubscriptionType{
		"Exclusive": pulsar.Exclusive, "Shared": pulsar.Shared, "Failover": pulsar.Failover, "Key_Shared": pulsar.KeyShared,
	}
	consumer := must(client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "go", Type: types[kind], NackRedeliveryDelay: 100 * time.Millisecond,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	}))
	defer consumer.Close()
	for acknowledged := 0; acknowledged < messages; {
		message := next(consumer.Receive)
		if message.RedeliveryCount() == 0 {
			consumer.Nack(message)
			continue
		}
		check(consumer.Ack(message))
		acknowledged++
		say(string(message.Payload()), message.Key(), message.Properties()["number"], message.RedeliveryCount())
	}
}

func read(client pulsar.Client, topic string, messages int) {
	reader := must(client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: pulsar.EarliestMessageID()}))
	defer reader.Close()
	for range messages {
		say(string(next(reader.Next).Payload()))
	}
	say("more", reader.HasNext())
}

func view(client pulsar.Client, topic string) {
	table := must(client.CreateTableView(pulsar.TableViewOptions{
		Topic: topic, Schema: pulsar.NewBytesSchema(nil), SchemaValueType: reflect.TypeOf([]byte{}),
	}))
	defer table.Close()
	keys := table.Keys()
	slices.Sort(keys)
	for _, key := range keys {
		say(key, string(table.Get(key).([]byte)))
	}
}

// schema sends and receives orders in JSON, with a schema that is registered.
func schema(client pulsar.Client, topic string, messages int) {
	definition := `{"type":"record","name":"Order","fields":[{"name":"number","type":"int"}]}`
	typed := pulsar.NewJSONSchema(definition, nil)
	consumer := must(client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "go", Schema: typed}))
	defer consumer.Close()
	producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Schema: typed}))
	defer producer.Close()
	for number := range messages {
		must(producer.Send(context.Background(), &pulsar.ProducerMessage{Value: order{number}}))
	}
	for range messages {
		message := next(consumer.Receive)
		var found order
		check(message.GetSchemaValue(&found))
		check(consumer.Ack(message))
		say(found.Number)
	}
}

// transaction takes one message of the topic, sends it on to another one, and commits or aborts both.
func transaction(client pulsar.Client, topic, outcome string) {
	consumer := must(client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "go", SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	}))
	defer consumer.Close()
	producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic + "-out", DisableBatching: true}))
	defer producer.Close()
	message := next(consumer.Receive)
	begun := must(client.NewTransaction(patience))
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{Transaction: begun, Payload: message.Payload()}))
	check(consumer.AckWithTxn(message, begun))
	if outcome == "commit" {
		check(begun.Commit(context.Background()))
	} else {
		check(begun.Abort(context.Background()))
	}
	say(outcome, string(message.Payload()))
}

// flow sends numbers until standard input has something, and says when each came; Failover acknowledges cumulatively.
func flow(client pulsar.Client, topic, subscription, kind string) {
	types := map[string]pulsar.SubscriptionType{"Shared": pulsar.Shared, "Failover": pulsar.Failover}
	consumer := must(client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: subscription, Type: types[kind],
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	}))
	defer consumer.Close()
	producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, SendTimeout: -1}))
	defer producer.Close()
	var sent, failed atomic.Int64
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		close(stop)
	}()
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				check(producer.Flush())
				return
			case <-time.After(3 * time.Millisecond):
				text := fmt.Sprintf("%s %d", subscription, sent.Add(1)-1)
				producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(text)},
					func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
						if err != nil {
							failed.Add(1)
						}
					})
			}
		}
	}()
	seen := map[string]bool{}
	for {
		select {
		case <-done:
			if int64(len(seen)) >= sent.Load() {
				say("sent", sent.Load(), failed.Load())
				return
			}
		default:
		}
		within, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		message, err := consumer.Receive(within)
		cancel()
		if err != nil {
			continue
		}
		words := strings.Split(string(message.Payload()), " ")
		if words[0] == subscription {
			seen[words[1]] = true
			say("came", time.Now().UnixMilli(), words[1])
		}
		if kind == "Failover" {
			check(consumer.AckCumulative(message))
		} else {
			check(consumer.Ack(message))
		}
	}
}

func next(receive func(context.Context) (pulsar.Message, error)) pulsar.Message {
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return must(receive(within))
}

func number(argument int) int {
	return must(strconv.Atoi(os.Args[argument]))
}

func say(seen ...any) {
	fmt.Println(append([]any{">"}, seen...)...)
}

func must[T any](found T, err error) T {
	check(err)
	return found
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
