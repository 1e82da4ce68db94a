package org.flinkskills.bridge.pool;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;

import java.io.File;
import java.lang.ref.WeakReference;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.function.BiFunction;
import org.apache.flink.api.common.JobID;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.Waiting;
import org.flinkskills.bridge.operator.AgentOperator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * A job in a session cluster has its own class loader. Nothing that outlives the job may keep it:
 * no thread, no pooled thread's context class loader, no hook and no cache of Flink or Java.
 */
@Timeout(60)
public class ClassLoaderReleaseTest {
  @TempDir File tmp;
  @TempDir Path modules;

  /** Loads the bridge again, as Flink does for each job with the bridge in its jars. */
  private static final class JobClassLoader extends URLClassLoader {
    JobClassLoader() {
      super(
          new URL[] {locationOf(AgentOperator.class), locationOf(ClassLoaderReleaseTest.class)},
          ClassLoaderReleaseTest.class.getClassLoader());
    }

    private static URL locationOf(Class<?> type) {
      return type.getProtectionDomain().getCodeSource().getLocation();
    }

    @Override
    protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
      synchronized (getClassLoadingLock(name)) {
        if (!name.startsWith("org.flinkskills.")) {
          return super.loadClass(name, resolve);
        }
        Class<?> loaded = findLoadedClass(name);
        return loaded != null ? loaded : findClass(name);
      }
    }
  }

  /** Runs a job with a worker that is killed and one that is closed; both leave a daemon. */
  public static final class Job implements BiFunction<File, Path, Class<?>> {
    public Job() {}

    @Override
    public Class<?> apply(File tmp, Path modules) {
      LinkedHashMap<String, String> env = new LinkedHashMap<>();
      env.put("PYTHONPATH", modules.toString());
      JobID id = new JobID();
      AgentHarness.Builder builder = new AgentHarness.Builder(null, tmp).jobId(id);
      try (AgentHarness agent = builder.python("python3", env).open()) {
        agent.send("a", "leave session orphan");
        agent.awaitEmitted(1);
        // A process that they start gets a thread of Java's, which inherits their class loader and
        // is used for other processes for minutes.
        for (Thread thread : WorkerPoolTest.threads(id)) {
          assertEquals(ClassLoader.getSystemClassLoader(), thread.getContextClassLoader());
        }
        agent.send("a", "crash");
        agent.awaitEmitted(2);
        agent.send("a", "leave session orphan");
        agent.awaitEmitted(3);
      } catch (Exception e) {
        throw new IllegalStateException(e);
      }
      assertEquals(List.of(), WorkerPoolTest.poolThreads(id));
      return AgentOperator.class;
    }
  }

  @Test
  void nothingKeepsTheClassesOfAJobThatHasEnded() throws Exception {
    PythonWorkerTest.installEchoWorker(modules);
    // The first job creates objects that the JVM keeps, such as the hook of its logs.
    new Job().apply(tmp, modules);
    WeakReference<ClassLoader> loader = runJob();
    Waiting.until(
        "the class loader of the job is collected",
        () -> {
          System.gc();
          return loader.get() == null;
        });
  }

  private WeakReference<ClassLoader> runJob() throws Exception {
    try (JobClassLoader loader = new JobClassLoader()) {
      Thread.currentThread().setContextClassLoader(loader);
      try {
        @SuppressWarnings("unchecked")
        BiFunction<File, Path, Class<?>> job =
            (BiFunction<File, Path, Class<?>>)
                loader.loadClass(Job.class.getName()).getConstructor().newInstance();
        assertNotSame(AgentOperator.class, job.apply(tmp, modules));
      } finally {
        Thread.currentThread().setContextClassLoader(ClassLoaderReleaseTest.class.getClassLoader());
      }
      return new WeakReference<>(loader);
    }
  }
}
