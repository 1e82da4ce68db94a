package com.example.jobs;

import java.math.BigDecimal;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** A user function that throws on one malformed record, again after each restart. */
public class OrdersEnrichment {
  public static class ParseOrder implements MapFunction<String, BigDecimal> {
    private static final long serialVersionUID = 1L;

    @Override
    public BigDecimal map(String line) {
      String[] fields = line.split(";");
      try {
        return new BigDecimal(fields[1]);
      } catch (NumberFormatException e) {
        throw new IllegalStateException("Cannot parse the amount of order " + fields[0] + ": '" + fields[1] + "'", e);
      }
    }
  }

  public static void main(String[] args) throws Exception {
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
    env.fromSequence(1, 1_000_000)
        .map(new Pace(5))
        .map(n -> n % 400 == 399 ? "A-" + n + ";12,50 EUR" : "A-" + n + ";12.50")
        .returns(String.class)
        .map(new ParseOrder())
        .name("parse-order")
        .sinkTo(new DiscardingSink<>());
    env.execute("orders-enrichment");
  }
}
