package org.flinkskills.bridge.operator;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.operators.BoundedOneInput;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.StreamOperatorParameters;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.watermarkstatus.WatermarkStatus;
import org.apache.flink.types.Row;
import org.flinkskills.bridge.plan.AgentPlan;
import org.flinkskills.bridge.plan.AgentSettings;

/** Agent operator with one input. */
public final class AgentOperator extends AbstractAgentOperator
    implements OneInputStreamOperator<Row, byte[]>, BoundedOneInput {
  private static final long serialVersionUID = 1L;

  AgentOperator(
      StreamOperatorParameters<byte[]> parameters,
      AgentPlan plan,
      AgentSettings settings,
      Configuration pythonConfig,
      AgentOperatorFactory.LauncherProvider launchers,
      boolean isControlled) {
    super(parameters, plan, settings, pythonConfig, launchers, isControlled);
  }

  @Override
  public void processElement(StreamRecord<Row> element) throws Exception {
    accept(element);
  }

  @Override
  public void processWatermark(Watermark mark) throws Exception {
    delay(mark);
  }

  @Override
  public void processWatermarkStatus(WatermarkStatus status) throws Exception {
    delay(status);
  }

  @Override
  public void endInput() throws Exception {
    endInputs();
  }
}
