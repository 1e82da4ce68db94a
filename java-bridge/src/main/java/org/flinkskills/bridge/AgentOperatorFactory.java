package org.flinkskills.bridge;

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

/** Makes {@link AgentOperator}s: what travels with the job graph. */
public final class AgentOperatorFactory extends AbstractStreamOperatorFactory<byte[]>
    implements OneInputStreamOperatorFactory<Row, byte[]> {
  private static final long serialVersionUID = 1L;

  /** Prepares the workers' environment on the TaskManager; the tests put their own here. */
  interface LauncherProvider extends Serializable {
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

  AgentOperatorFactory(AgentPlan plan, AgentSettings settings, StreamExecutionEnvironment env) {
    this(plan, settings, env, AgentOperatorFactory::openPython);
  }

  AgentOperatorFactory(
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

  /** Has the agent's workers tell what happens in turns. Until the job is submitted. */
  void enableEvents() {
    plan = plan.withEvents();
  }

  @Override
  public <T extends StreamOperator<byte[]>> T createStreamOperator(
      StreamOperatorParameters<byte[]> parameters) {
    AgentOperator operator = new AgentOperator(parameters, plan, settings, pythonConfig, launchers);
    @SuppressWarnings("unchecked")
    T typed = (T) operator;
    return typed;
  }

  @Override
  @SuppressWarnings("rawtypes")
  public Class<? extends StreamOperator> getStreamOperatorClass(ClassLoader classLoader) {
    return AgentOperator.class;
  }

  /**
   * The Python dependencies are read when the job is submitted, not when the operator is declared:
   * files may be added in between. Several operators may be serialized at the same time, and
   * reading also registers the files in the environment's configuration.
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
