package com.example.jobs;

import com.example.geo.RegionIndex;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** Calls a library that was on the class path when it was compiled and is missing from its jar. */
public class GeoLookup {
  public static class ToRegion implements MapFunction<Long, Long> {
    private static final long serialVersionUID = 1L;

    @Override
    public Long map(Long value) {
      return RegionIndex.regionOf(value);
    }
  }

  public static void main(String[] args) throws Exception {
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
    env.fromSequence(1, 1_000_000)
        .map(new Pace(5))
        .map(new ToRegion())
        .name("to-region")
        .sinkTo(new DiscardingSink<>());
    env.execute("geo-lookup");
  }
}
