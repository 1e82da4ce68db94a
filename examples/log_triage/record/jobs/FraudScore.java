package com.example.jobs;

import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** A slow operator behind a fast source: barriers wait behind full buffers until checkpoints expire. */
public class FraudScore {
  public static void main(String[] args) throws Exception {
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
    env.fromSequence(1, 1_000_000_000L)
        .keyBy(n -> n % 1000)
        .reduce(Long::sum)
        .map(new Pace(100))
        .name("score-by-remote-model")
        .sinkTo(new DiscardingSink<>());
    env.execute("payments-fraud-score");
  }
}
