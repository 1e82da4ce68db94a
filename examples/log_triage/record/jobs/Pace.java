package com.example.jobs;

import org.apache.flink.api.common.functions.MapFunction;

/** Passes records on at a fixed pace, so that a job lives long enough to be looked at. */
public class Pace implements MapFunction<Long, Long> {
  private static final long serialVersionUID = 1L;
  private final long millis;

  public Pace(long millis) {
    this.millis = millis;
  }

  @Override
  public Long map(Long value) throws Exception {
    Thread.sleep(millis);
    return value;
  }
}
