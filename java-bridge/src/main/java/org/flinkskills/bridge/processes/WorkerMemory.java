package org.flinkskills.bridge.processes;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.TaskManagerOptions;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Default of {@code skills.worker.max-memory}: an equal share of the container's or host's memory
 * that remains without the JVM.
 */
public final class WorkerMemory {
  private static final Logger LOG = LoggerFactory.getLogger(WorkerMemory.class);
  private static final long MEBIBYTE = 1 << 20;

  /** Enough for a worker with a client for models. */
  private static final long MIN_BYTES = 256 * MEBIBYTE;

  /** Code, threads and compiled methods of the JVM: Flink's smallest overhead. */
  private static final long NATIVE_BYTES = 192 * MEBIBYTE;

  private WorkerMemory() {}

  /** Return the maximum memory of one worker, in bytes. */
  public static long of(Configuration taskManager, int workers) {
    OperatingSystemMXBean system =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    // The JVM returns the limit of its container if there is one.
    return of(taskManager, workers, system.getTotalMemorySize(), Runtime.getRuntime().maxMemory());
  }

  public static long of(Configuration taskManager, int workers, long machine, long heap) {
    long jvm =
        heap
            + bytes(taskManager, TaskManagerOptions.FRAMEWORK_OFF_HEAP_MEMORY)
            + bytes(taskManager, TaskManagerOptions.TASK_OFF_HEAP_MEMORY)
            + bytes(taskManager, TaskManagerOptions.NETWORK_MEMORY_MAX)
            + bytes(taskManager, TaskManagerOptions.MANAGED_MEMORY_SIZE)
            + bytes(taskManager, TaskManagerOptions.JVM_METASPACE)
            + NATIVE_BYTES;
    long share = (machine - jvm) / workers;
    if (share >= MIN_BYTES) {
      return share;
    }
    LOG.warn(
        "The memory of this machine or container ({} MiB) cannot hold the JVM ({} MiB) and {} agent"
            + " workers of {} MiB each. Raise taskmanager.memory.jvm-overhead.min and the memory of"
            + " the container, or lower skills.worker.processes.",
        machine / MEBIBYTE,
        jvm / MEBIBYTE,
        workers,
        MIN_BYTES / MEBIBYTE);
    return MIN_BYTES;
  }

  /** A TaskManager's configuration has the sizes that Flink derived; a local cluster sets few. */
  private static long bytes(Configuration taskManager, ConfigOption<MemorySize> option) {
    MemorySize size = taskManager.getOptional(option).orElse(MemorySize.ZERO);
    return size.equals(MemorySize.MAX_VALUE) ? 0 : size.getBytes();
  }
}
