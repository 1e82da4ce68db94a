"""A SQL pipeline that names a connector whose jar is not on the class path."""

from __future__ import annotations

from pyflink.table import EnvironmentSettings, TableEnvironment


def main() -> None:
    table = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    table.get_config().set("pipeline.name", "kafka-ingest")
    table.execute_sql(
        "CREATE TABLE orders (id STRING, amount DECIMAL(10, 2)) WITH ("
        "'connector' = 'kafka', 'topic' = 'orders', "
        "'properties.bootstrap.servers' = 'kafka:9092', 'format' = 'json')"
    )
    table.execute_sql("CREATE TABLE sink (id STRING, amount DECIMAL(10, 2)) WITH ('connector' = 'blackhole')")
    table.execute_sql("INSERT INTO sink SELECT id, amount FROM orders")


if __name__ == "__main__":
    main()
