package com.example.jobs;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/** Keyed state on the heap that only grows (no TTL), until the heap is full. */
public class SessionProfiles {
  public static class CollectEvents extends KeyedProcessFunction<Long, Long, Long> {
    private static final long serialVersionUID = 1L;
    private transient ListState<byte[]> events;

    @Override
    public void open(OpenContext context) {
      events = getRuntimeContext().getListState(new ListStateDescriptor<>("events", byte[].class));
    }

    @Override
    public void processElement(Long value, Context context, Collector<Long> out) throws Exception {
      events.add(new byte[64 * 1024]);
      out.collect(value);
    }
  }

  public static void main(String[] args) throws Exception {
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
    env.fromSequence(1, 1_000_000)
        .map(new Pace(1))
        .keyBy(n -> n % 1000)
        .process(new CollectEvents())
        .name("collect-events")
        .sinkTo(new DiscardingSink<>());
    env.execute("session-profiles");
  }
}
