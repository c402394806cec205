"""A stream's checkpoint has small files, on any file system that Hadoop reaches; each is there whole or not at all."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


class CheckpointFiles:
    """Files lie by name in the directory `pulsar` beside Spark's own. Used by one thread.

    Writing is atomic as Spark's own logs are: by its `CheckpointFileManager`.
    """

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        jvm: Any = spark._jvm
        java: Any = spark._jsparkSession
        self._jvm = jvm
        self._directory = jvm.org.apache.hadoop.fs.Path(jvm.org.apache.hadoop.fs.Path(checkpoint), "pulsar")
        self._files = jvm.org.apache.spark.sql.execution.streaming.CheckpointFileManager.create(
            self._directory, java.sessionState().newHadoopConf()
        )
        self._made = False

    def write(self, name: str, content: bytes) -> None:
        """Replaces a file of that name; when this returns, it is durable."""
        if not self._made:
            self._files.mkdirs(self._directory)
            self._made = True
        stream = self._files.createAtomic(self._path(name), True)
        try:
            stream.write(content)
            stream.close()
        except BaseException:
            stream.cancel()
            raise

    def read(self, name: str) -> bytes | None:
        """None when there is none."""
        if not self._files.exists(self._path(name)):
            return None
        stream = self._files.open(self._path(name))
        try:
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def names(self) -> list[str]:
        try:
            listed = self._files.list(self._directory)
        except Py4JJavaError as failure:
            if "FileNotFoundException" in str(failure.java_exception):
                return []
            raise
        return [str(status.getPath().getName()) for status in listed]

    def remove(self, name: str) -> None:
        """One that is not there is no error."""
        self._files.delete(self._path(name))

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._directory, name)
