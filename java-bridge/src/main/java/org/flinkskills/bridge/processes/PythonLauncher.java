package org.flinkskills.bridge.processes;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.cache.DistributedCache;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.python.PythonOptions;
import org.apache.flink.python.env.AbstractPythonEnvironmentManager;
import org.apache.flink.python.env.PythonDependencyInfo;
import org.apache.flink.python.env.process.ProcessPythonEnvironmentManager;
import org.apache.flink.util.TemporaryClassLoaderContext;
import org.flinkskills.bridge.plan.AgentSettings;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Launcher of {@code python -m flink_skills.worker} in the job's own Python environment: with the
 * interpreter, files, archives and requirements of {@code -pyexec}, {@code -pyfs}, {@code -pyarch}
 * and {@code -pyreq}, which PyFlink prepares as for its own workers.
 */
public final class PythonLauncher implements WorkerLauncher {
  private static final Logger LOG = LoggerFactory.getLogger(PythonLauncher.class);
  private static final String MODULE = "flink_skills.worker";
  private static final String INTERPRETER_VARIABLE = "python";

  private final ProcessPythonEnvironmentManager environment;
  private final Map<String, String> variables;
  private final File workingDirectory;
  private final String interpreter;
  private final String marker;
  private final PrintStream prints;
  private final AtomicInteger launches = new AtomicInteger();

  private PythonLauncher(
      ProcessPythonEnvironmentManager environment, AgentSettings settings, String marker) {
    this.environment = environment;
    this.marker = marker;
    this.variables = new HashMap<>(environment.getPythonEnv());
    this.variables.putAll(settings.env());
    this.prints = settings.showPrints() ? System.out : null;
    if (prints != null) {
      variables.put(WorkerLog.MARK_VARIABLE, "1");
    }
    String directory = variables.get(AbstractPythonEnvironmentManager.PYTHON_WORKING_DIR);
    this.workingDirectory = directory == null || directory.isEmpty() ? null : new File(directory);
    this.interpreter = resolve(variables.get(INTERPRETER_VARIABLE), workingDirectory);
  }

  /**
   * Prepare the environment: extract archives, link files, and install requirements. Terminate the
   * remaining processes of the workers of a killed TaskManager.
   *
   * @param marker distinguishes the workers of this pool from all others, see {@link LeftProcesses}
   * @param settings provides the interpreter if the configuration sets none
   */
  public static PythonLauncher open(
      String marker,
      Configuration pythonConfig,
      AgentSettings settings,
      DistributedCache cache,
      String[] tmpDirectories,
      JobID jobId)
      throws Exception {
    LeftProcesses.ofEndedTaskManagers().end("A TaskManager that was killed");
    Configuration config = new Configuration(pythonConfig);
    if (settings.pythonExecutable() != null
        && config.getOptional(PythonOptions.PYTHON_EXECUTABLE).isEmpty()) {
      config.set(PythonOptions.PYTHON_EXECUTABLE, settings.pythonExecutable());
    }
    PythonDependencyInfo dependencies = PythonDependencyInfo.create(config, cache);
    ProcessPythonEnvironmentManager environment =
        new ProcessPythonEnvironmentManager(dependencies, tmpDirectories, System.getenv(), jobId);
    // As with the threads of the pool: it may start processes, such as pip.
    try (TemporaryClassLoaderContext ignored =
        TemporaryClassLoaderContext.of(ClassLoader.getSystemClassLoader())) {
      environment.open();
    }
    try {
      return new PythonLauncher(environment, settings, marker);
    } catch (RuntimeException e) {
      environment.close();
      throw e;
    }
  }

  @Override
  public PrintStream prints() {
    return prints;
  }

  @Override
  public Worker launch(int index) throws IOException {
    ProcessBuilder builder = new ProcessBuilder(interpreter, "-m", MODULE);
    builder.environment().clear();
    builder.environment().putAll(variables);
    String ownMarker =
        LeftProcesses.marker(marker + "/" + index + "." + launches.incrementAndGet());
    builder.environment().put(LeftProcesses.VARIABLE, ownMarker);
    builder.directory(workingDirectory);
    try {
      return new ProcessWorker(builder.start(), ownMarker);
    } catch (IOException e) {
      throw new IOException(
          String.format(
              "The Python interpreter '%s' for the agent workers cannot be started (%s). Set one"
                  + " that exists on every TaskManager by flink run -pyexec, python.executable or"
                  + " env.set_python_executable(...).",
              interpreter, e.getMessage()),
          e);
    }
  }

  @Override
  public void close() throws IOException {
    try {
      environment.close();
    } catch (Exception e) {
      throw new IOException("PyFlink could not remove its Python environment.", e);
    }
  }

  /**
   * An interpreter inside an archive is given relative to the folder of the archives, and archives
   * lose the execute permission.
   */
  private static String resolve(String interpreter, File workingDirectory) {
    if (workingDirectory == null || !interpreter.contains(File.separator)) {
      return interpreter;
    }
    Path path = workingDirectory.toPath().resolve(interpreter);
    if (!Files.isRegularFile(path)) {
      return interpreter;
    }
    if (path.startsWith(workingDirectory.toPath())
        && !Files.isExecutable(path)
        && !path.toFile().setExecutable(true)) {
      LOG.warn("The Python interpreter {} of the agent workers is not executable.", path);
    }
    return path.toString();
  }

  /** A worker that is an operating-system process. */
  static final class ProcessWorker implements Worker {
    private static final int KILL_PASSES = 3;

    private final Process process;
    private final String marker;
    private final LeftProcesses remaining;
    private boolean endedRemaining;

    ProcessWorker(Process process, String marker) {
      this.process = process;
      this.marker = marker;
      this.remaining = LeftProcesses.of(process, marker);
    }

    @Override
    public OutputStream input() {
      return process.getOutputStream();
    }

    @Override
    public InputStream output() {
      return process.getInputStream();
    }

    @Override
    public InputStream log() {
      return process.getErrorStream();
    }

    @Override
    public boolean awaitExit(long millis) throws InterruptedException {
      return process.waitFor(millis, TimeUnit.MILLISECONDS);
    }

    @Override
    public void kill() {
      // The descendants must be listed while their parents live: orphans are no longer found.
      for (int pass = 0; pass < KILL_PASSES; pass++) {
        List<ProcessHandle> descendants;
        try (Stream<ProcessHandle> handles = process.descendants()) {
          descendants = handles.toList();
        }
        descendants.forEach(ProcessHandle::destroyForcibly);
        if (descendants.isEmpty()) {
          break;
        }
      }
      process.destroyForcibly();
    }

    @Override
    public synchronized void endRemaining() throws InterruptedException {
      if (!endedRemaining && !process.isAlive()) {
        remaining.end("Agent worker " + marker);
        endedRemaining = true;
      }
    }

    @Override
    public String exitDescription() {
      if (process.isAlive()) {
        return "still running";
      }
      int code = process.exitValue();
      return code > 128
          ? "exit code " + code + " (signal " + (code - 128) + ")"
          : "exit code " + code;
    }
  }
}
