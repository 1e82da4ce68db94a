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

/** Outputs of an agent, to which the operator emits the records of workers. */
final class AgentOutputs {
  /** The side output for the events of turns. */
  static final String EVENTS = "events";

  private static final String MAIN_OUTPUT = "";

  private final Output<StreamRecord<byte[]>> output;
  private final ResultPartitionWriter[] writers;
  private final Map<String, OutputTag<byte[]>> tags = new HashMap<>();

  /** The reports of workers wait until the outputs accept records. */
  private boolean blocked;

  /**
   * @param writers the writers of the task, in which the operators of its chain end
   */
  AgentOutputs(Output<StreamRecord<byte[]>> output, ResultPartitionWriter[] writers) {
    this.output = output;
    this.writers = writers;
  }

  /**
   * Return true if all outputs have a free buffer. A record of several buffers may still have to
   * wait.
   */
  boolean isAvailable() {
    return unavailable() == null;
  }

  /** Return true between {@link #block} and {@link #unblock}. */
  boolean isBlocked() {
    return blocked;
  }

  /**
   * Block the operator's results because an output accepts no record.
   *
   * @param whenAvailable runs when that output accepts a record, on any thread
   */
  void block(Runnable whenAvailable) {
    blocked = true;
    ResultPartitionWriter writer = unavailable();
    if (writer == null) {
      whenAvailable.run();
    } else {
      writer.getAvailableFuture().thenRun(whenAvailable);
    }
  }

  void unblock() {
    blocked = false;
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
   * Emit records.
   *
   * @param timestamp event time in milliseconds; may be null
   */
  void emit(Long timestamp, List<Frame.Output> outputs) {
    for (Frame.Output item : outputs) {
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

  /** Emit events of an agent without a timestamp. */
  void emitEvents(List<byte[]> events) {
    emit(null, events.stream().map(event -> new Frame.Output(EVENTS, event)).toList());
  }

  /** Return the tag of a side output, as a Python job declares it. */
  static OutputTag<byte[]> tag(String name) {
    TypeInformation<byte[]> type = PickledByteArrayTypeInfo.PICKLED_BYTE_ARRAY_TYPE_INFO;
    return new OutputTag<>(name, type);
  }
}
