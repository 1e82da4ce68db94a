package org.flinkskills.bridge;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.streaming.api.operators.Output;
import org.apache.flink.streaming.api.typeinfo.python.PickledByteArrayTypeInfo;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.util.OutputTag;

/** Emits what workers send to the outputs of an agent. */
final class AgentOutputs {
  private static final String MAIN_OUTPUT = "";

  private final Output<StreamRecord<byte[]>> output;
  private final Map<String, OutputTag<byte[]>> tags = new HashMap<>();

  AgentOutputs(Output<StreamRecord<byte[]>> output) {
    this.output = output;
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
