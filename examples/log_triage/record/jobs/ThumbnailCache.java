package com.example.jobs;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** Keeps off-heap buffers until the JVM's direct memory limit is reached. */
public class ThumbnailCache {
  public static class Cache implements MapFunction<Long, Long> {
    private static final long serialVersionUID = 1L;
    private transient List<ByteBuffer> buffers;

    @Override
    public Long map(Long value) {
      if (buffers == null) {
        buffers = new ArrayList<>();
      }
      buffers.add(ByteBuffer.allocateDirect(4 << 20));
      return value;
    }
  }

  public static void main(String[] args) throws Exception {
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
    env.fromSequence(1, 1_000_000)
        .map(new Pace(20))
        .map(new Cache())
        .name("cache-thumbnail")
        .sinkTo(new DiscardingSink<>());
    env.execute("thumbnail-cache");
  }
}
