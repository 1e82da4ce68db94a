package com.example.jobs;

import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** A healthy keyed job with a shuffle; its name is the first argument. */
public class ClickSessions {
  public static void main(String[] args) throws Exception {
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
    env.fromSequence(1, Long.parseLong(args[1]))
        .map(new Pace(2))
        .keyBy(n -> n % 100)
        .reduce(Long::sum)
        .name("sum-per-visitor")
        .sinkTo(new DiscardingSink<>());
    env.execute(args[0]);
  }
}
