package com.example.jobs;

import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** Defines a class per record in a loader of its own and keeps it, as a badly cached rule compiler does. */
public class RulesEngine {
  public static class CompiledRule {}

  static final class RuleLoader extends ClassLoader {
    RuleLoader(ClassLoader parent) {
      super(parent);
    }

    Class<?> define(byte[] code) {
      return defineClass(CompiledRule.class.getName(), code, 0, code.length);
    }
  }

  public static class CompileRule implements MapFunction<Long, Long> {
    private static final long serialVersionUID = 1L;
    private static final List<Object> CACHE = new ArrayList<>();

    @Override
    public Long map(Long value) throws Exception {
      byte[] code = bytecode();
      for (int i = 0; i < 20; i++) {
        CACHE.add(new RuleLoader(getClass().getClassLoader()).define(code).getConstructor().newInstance());
      }
      return value;
    }

    private static byte[] bytecode() throws IOException {
      try (InputStream in = RulesEngine.class.getResourceAsStream("RulesEngine$CompiledRule.class")) {
        return in.readAllBytes();
      }
    }
  }

  public static void main(String[] args) throws Exception {
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
    env.fromSequence(1, 1_000_000)
        .map(new Pace(1))
        .map(new CompileRule())
        .name("compile-rule")
        .sinkTo(new DiscardingSink<>());
    env.execute("rules-engine");
  }
}
