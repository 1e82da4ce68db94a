package com.example.jobs;

import java.io.IOException;
import java.net.Socket;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** Needs a service that does not listen; host and port are the arguments. */
public class SensorGateway {
  public static class AskGateway extends RichMapFunction<Long, Long> {
    private static final long serialVersionUID = 1L;
    private final String host;
    private final int port;

    AskGateway(String host, int port) {
      this.host = host;
      this.port = port;
    }

    @Override
    public void open(OpenContext context) throws IOException {
      new Socket(host, port).close();
    }

    @Override
    public Long map(Long value) {
      return value;
    }
  }

  public static void main(String[] args) throws Exception {
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
    env.fromSequence(1, 1_000_000)
        .map(new Pace(5))
        .map(new AskGateway(args[0], Integer.parseInt(args[1])))
        .name("ask-gateway")
        .sinkTo(new DiscardingSink<>());
    env.execute("sensor-gateway");
  }
}
