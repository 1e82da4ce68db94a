package org.flinkskills.bridge.operator;

import java.util.ArrayList;
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
 * Agent operator with inputs of answers and of control records, after that of events.
 *
 * <p>Watermarks of answers and control records have no effect, because these have no event time.
 * Flink's operator with two inputs combines the watermark status of both before the operator
 * receives it. This operator therefore defines the handling of each input itself.
 */
@SuppressWarnings("rawtypes")
final class MultipleInputAgentOperator extends AbstractAgentOperator
    implements MultipleInputStreamOperator<byte[]>, BoundedMultiInput {
  private static final long serialVersionUID = 1L;

  private final transient List<Input> inputs;

  /** The number of inputs that have ended. */
  private transient int ended;

  MultipleInputAgentOperator(
      StreamOperatorParameters<byte[]> parameters,
      AgentPlan plan,
      AgentSettings settings,
      Configuration pythonConfig,
      AgentOperatorFactory.LauncherProvider launchers,
      boolean hasAnswers,
      boolean hasControl) {
    super(parameters, plan, settings, pythonConfig, launchers, hasControl);
    inputs = new ArrayList<>(List.of(new Events()));
    if (hasAnswers) {
      inputs.add(new Answers());
    }
    if (hasControl) {
      inputs.add(new ControlRecords());
    }
  }

  @Override
  public List<Input> getInputs() {
    return inputs;
  }

  @Override
  public void endInput(int inputId) throws Exception {
    ended++;
    if (ended == inputs.size()) {
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

  /** An input without event time. */
  private abstract class Untimed<T> implements Input<T> {
    @Override
    public void processWatermark(Watermark mark) {}

    @Override
    public void processWatermarkStatus(WatermarkStatus status) {}

    @Override
    public void processLatencyMarker(LatencyMarker marker) {
      reportOrForwardLatencyMarker(marker);
    }
  }

  /** The input of answers. */
  private final class Answers extends Untimed<Row> {
    @Override
    public void processElement(StreamRecord<Row> element) throws Exception {
      acceptAnswer(element.getValue());
    }

    @Override
    public void setKeyContextElement(StreamRecord<Row> element) throws Exception {
      setKeyContextElement2(element);
    }
  }

  /** The input of control records, which all subtasks receive. */
  private final class ControlRecords extends Untimed<String> {
    @Override
    public void processElement(StreamRecord<String> element) throws Exception {
      acceptControl(element.getValue());
    }

    @Override
    public void setKeyContextElement(StreamRecord<String> element) {
      // A record belongs to no key.
    }
  }
}
