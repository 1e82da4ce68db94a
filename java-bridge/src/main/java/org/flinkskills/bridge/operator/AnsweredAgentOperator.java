package org.flinkskills.bridge.operator;

import java.util.List;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.operators.BoundedMultiInput;
import org.apache.flink.streaming.api.operators.Input;
import org.apache.flink.streaming.api.operators.MultipleInputStreamOperator;
import org.apache.flink.streaming.api.operators.StreamOperatorParameters;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.LatencyMarker;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.watermarkstatus.WatermarkStatus;
import org.apache.flink.types.Row;
import org.flinkskills.bridge.plan.AgentPlan;
import org.flinkskills.bridge.plan.AgentSettings;

/**
 * Agent operator with a second input, whose rows are answers.
 *
 * <p>Watermarks of the answers have no effect, because answers have no event time. Flink's operator
 * with two inputs combines the watermark status of both before the operator receives it. This
 * operator therefore defines the handling of each input itself.
 */
final class AnsweredAgentOperator extends AbstractAgentOperator
    implements MultipleInputStreamOperator<byte[]>, BoundedMultiInput {
  private static final long serialVersionUID = 1L;
  private static final int INPUTS = 2;

  /** The number of inputs that have ended. */
  private transient int ended;

  AnsweredAgentOperator(
      StreamOperatorParameters<byte[]> parameters,
      AgentPlan plan,
      AgentSettings settings,
      Configuration pythonConfig,
      AgentOperatorFactory.LauncherProvider launchers) {
    super(parameters, plan, settings, pythonConfig, launchers);
  }

  @Override
  @SuppressWarnings("rawtypes")
  public List<Input> getInputs() {
    return List.of(new Events(), new Answers());
  }

  @Override
  public void endInput(int inputId) throws Exception {
    ended++;
    if (ended == INPUTS) {
      endInputs();
    }
  }

  /** The input of events. */
  private final class Events implements Input<Row> {
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
    public void processLatencyMarker(LatencyMarker marker) {
      reportOrForwardLatencyMarker(marker);
    }

    @Override
    public void setKeyContextElement(StreamRecord<Row> element) throws Exception {
      setKeyContextElement1(element);
    }
  }

  /** The input of answers. */
  private final class Answers implements Input<Row> {
    @Override
    public void processElement(StreamRecord<Row> element) throws Exception {
      acceptAnswer(element.getValue());
    }

    @Override
    public void processWatermark(Watermark mark) {}

    @Override
    public void processWatermarkStatus(WatermarkStatus status) {}

    @Override
    public void processLatencyMarker(LatencyMarker marker) {
      reportOrForwardLatencyMarker(marker);
    }

    @Override
    public void setKeyContextElement(StreamRecord<Row> element) throws Exception {
      setKeyContextElement2(element);
    }
  }
}
