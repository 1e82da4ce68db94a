package org.flinkskills.bridge;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.runtime.io.network.api.writer.ResultPartitionWriter;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.api.typeinfo.python.PickledByteArrayTypeInfo;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.util.OutputTag;

/** Emits what workers send to the outputs of an agent. */
final class AgentOutputs {
  private static final String MAIN_OUTPUT = "";

  private final Output<StreamRecord<byte[]>> output;
  private final ResultPartitionWriter[] writers;
  private final Map<String, OutputTag<byte[]>> tags = new HashMap<>();

  /**
   * @param writers the writers of the task, in which the operators of its chain end
   */
  AgentOutputs(Output<StreamRecord<byte[]>> output, ResultPartitionWriter[] writers) {
    this.output = output;
    this.writers = writers;
  }

  /** Whether all outputs have a free buffer. A record of several buffers may still have to wait. */
  boolean isAvailable() {
    return unavailable() == null;
  }

  /** Runs {@code then} when an output that accepts no record now accepts one. */
  void whenAvailable(Runnable then) {
    ResultPartitionWriter writer = unavailable();
    if (writer == null) {
      then.run();
    } else {
      writer.getAvailableFuture().thenRun(then);
    }
  }

  private ResultPartitionWriter unavailable() {
    for (ResultPartitionWriter writer : writers) {
      if (!writer.isAvailable()) {
        return writer;
      }
    }
    return null;
  }

  /**
   * @param timestamp event time in milliseconds; may be null
   */
  void emit(Long timestamp, List<Frames.Output> outputs) {
    for (Frames.Output item : outputs) {
      StreamRecord<byte[]> record = new StreamRecord<>(item.value());
      if (timestamp != null) {
        record.setTimestamp(timestamp);
      }
      if (item.tag().equals(MAIN_OUTPUT)) {
        output.collect(record);
      } else {
        output.collect(tags.computeIfAbsent(item.tag(), AgentOutputs::tag), record);
      }
    }
  }

  /** The tag of a side output, as a Python job declares it. */
  static OutputTag<byte[]> tag(String name) {
    TypeInformation<byte[]> type = PickledByteArrayTypeInfo.PICKLED_BYTE_ARRAY_TYPE_INFO;
    return new OutputTag<>(name, type);
  }
}
