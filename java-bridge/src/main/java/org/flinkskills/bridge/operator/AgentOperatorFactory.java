package org.flinkskills.bridge.operator;

import java.io.IOException;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.nio.file.Path;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.python.util.PythonConfigUtil;
import org.apache.flink.runtime.execution.Environment;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.operators.AbstractStreamOperatorFactory;
import org.apache.flink.streaming.api.operators.OneInputStreamOperatorFactory;
import org.apache.flink.streaming.api.operators.StreamOperator;
import org.apache.flink.streaming.api.operators.StreamOperatorParameters;
import org.apache.flink.streaming.api.operators.StreamingRuntimeContext;
import org.apache.flink.types.Row;
import org.flinkskills.bridge.plan.AgentPlan;
import org.flinkskills.bridge.plan.AgentSettings;
import org.flinkskills.bridge.processes.PythonLauncher;
import org.flinkskills.bridge.processes.WorkerLauncher;

/** Factory of {@link AgentOperator}s, which is a part of the job graph. */
public final class AgentOperatorFactory extends AbstractStreamOperatorFactory<byte[]>
    implements OneInputStreamOperatorFactory<Row, byte[]> {
  private static final long serialVersionUID = 1L;

  /** Factory of the workers' environment on the TaskManager. Tests replace it. */
  public interface LauncherProvider extends Serializable {
    WorkerLauncher open(
        Path scratch,
        Configuration pythonConfig,
        AgentSettings settings,
        StreamingRuntimeContext context,
        Environment environment)
        throws Exception;
  }

  private AgentPlan plan;
  private final AgentSettings settings;
  private final LauncherProvider launchers;
  private final transient StreamExecutionEnvironment env;
  private Configuration pythonConfig;

  /** The operator has an input for answers, one for control records, or both. */
  private boolean hasAnswers;

  private boolean hasControlInput;

  /** The operator has the state of control records. */
  private boolean isControlled;

  public AgentOperatorFactory(
      AgentPlan plan, AgentSettings settings, StreamExecutionEnvironment env) {
    this(plan, settings, env, AgentOperatorFactory::openPython);
  }

  public AgentOperatorFactory(
      AgentPlan plan,
      AgentSettings settings,
      StreamExecutionEnvironment env,
      LauncherProvider launchers) {
    this.plan = plan;
    this.settings = settings;
    this.env = env;
    this.launchers = launchers;
    this.pythonConfig = new Configuration();
  }

  /** Return the error message for batch mode, which stores the state of one key at a time. */
  public static String noBatchMode(String mode) {
    return "execution.runtime-mode is "
        + mode
        + ", but agents are streaming operators. Set it to STREAMING: a streaming job also ends"
        + " after its bounded sources.";
  }

  /** Emit the events of turns. Call this before the job is submitted. */
  public void enableEvents() {
    plan = plan.withEvents();
  }

  /** Replace the plan, and keep its secrets. Call this before the job is submitted. */
  public void replacePlan(String planJson) {
    plan = plan.withJson(planJson);
  }

  /** Add an input for answers, after the input of events. */
  public void enableAnswers() {
    hasAnswers = true;
  }

  /** Accept control records. */
  public void enableControl() {
    isControlled = true;
  }

  /** Add an input for control records, after all others. */
  public void enableControlInput() {
    enableControl();
    hasControlInput = true;
  }

  @Override
  public <T extends StreamOperator<byte[]>> T createStreamOperator(
      StreamOperatorParameters<byte[]> parameters) {
    AbstractAgentOperator operator =
        hasAnswers || hasControlInput
            ? new MultipleInputAgentOperator(
                parameters, plan, settings, pythonConfig, launchers, hasAnswers, hasControlInput)
            : new AgentOperator(parameters, plan, settings, pythonConfig, launchers, isControlled);
    @SuppressWarnings("unchecked")
    T typed = (T) operator;
    return typed;
  }

  @Override
  @SuppressWarnings("rawtypes")
  public Class<? extends StreamOperator> getStreamOperatorClass(ClassLoader classLoader) {
    return hasAnswers || hasControlInput ? MultipleInputAgentOperator.class : AgentOperator.class;
  }

  /**
   * Read the Python dependencies when the job is submitted, because files may be added after the
   * operator is declared. Several operators may be serialized at the same time, and this also
   * registers the files in the environment's configuration.
   */
  private void writeObject(ObjectOutputStream out) throws IOException {
    if (env != null) {
      synchronized (AgentOperatorFactory.class) {
        pythonConfig = PythonConfigUtil.extractPythonConfiguration(env.getConfiguration());
      }
    }
    out.defaultWriteObject();
  }

  private static WorkerLauncher openPython(
      Path scratch,
      Configuration pythonConfig,
      AgentSettings settings,
      StreamingRuntimeContext context,
      Environment environment)
      throws Exception {
    return PythonLauncher.open(
        scratch.getFileName().toString(),
        pythonConfig,
        settings,
        context.getDistributedCache(),
        environment.getTaskManagerInfo().getTmpDirectories(),
        environment.getJobID());
  }
}
