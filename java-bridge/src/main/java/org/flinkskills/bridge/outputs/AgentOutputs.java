package org.flinkskills.bridge.outputs;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.runtime.io.network.api.writer.ResultPartitionWriter;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.api.typeinfo.python.PickledByteArrayTypeInfo;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.util.OutputTag;
import org.flinkskills.bridge.frames.Frame;

/** Outputs of an agent, to which the operator emits the records of workers. */
public final class AgentOutputs {
  /** The side output for the events of turns. */
  public static final String EVENTS = "events";

  private static final String MAIN_OUTPUT = "";

  private final Output<StreamRecord<byte[]>> output;
  private final ResultPartitionWriter[] writers;
  private final Map<String, OutputTag<byte[]>> tags = new HashMap<>();

  /** The reports of workers wait until the outputs accept records. */
  private boolean blocked;

  /**
   * @param writers the writers of the task, in which the operators of its chain end
   */
  public AgentOutputs(Output<StreamRecord<byte[]>> output, ResultPartitionWriter[] writers) {
    this.output = output;
    this.writers = writers;
  }

  /**
   * Return true if all outputs have a free buffer. A record of several buffers may still have to
   * wait.
   */
  public boolean isAvailable() {
    return unavailable() == null;
  }

  /** Return true between {@link #block} and {@link #unblock}. */
  public boolean isBlocked() {
    return blocked;
  }

  /**
   * Block the operator's results because an output accepts no record.
   *
   * @param whenAvailable runs when that output accepts a record, on any thread
   */
  public void block(Runnable whenAvailable) {
    blocked = true;
    ResultPartitionWriter writer = unavailable();
    if (writer == null) {
      whenAvailable.run();
    } else {
      writer.getAvailableFuture().thenRun(whenAvailable);
    }
  }

  public void unblock() {
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
  public void emit(Long timestamp, List<Frame.Output> outputs) {
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
  public void emitEvents(List<byte[]> events) {
    emit(null, events.stream().map(event -> new Frame.Output(EVENTS, event)).toList());
  }

  /** Return the tag of a side output, as a Python job declares it. */
  public static OutputTag<byte[]> tag(String name) {
    TypeInformation<byte[]> type = PickledByteArrayTypeInfo.PICKLED_BYTE_ARRAY_TYPE_INFO;
    return new OutputTag<>(name, type);
  }
}
