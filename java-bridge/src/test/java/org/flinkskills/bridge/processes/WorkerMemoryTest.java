package org.flinkskills.bridge.processes;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.TaskManagerOptions;
import org.junit.jupiter.api.Test;

class WorkerMemoryTest {
  private static final long MIB = 1 << 20;

  private static Configuration sizes() {
    Configuration sizes = new Configuration();
    sizes.set(TaskManagerOptions.FRAMEWORK_OFF_HEAP_MEMORY, MemorySize.ofMebiBytes(128));
    sizes.set(TaskManagerOptions.NETWORK_MEMORY_MAX, MemorySize.ofMebiBytes(230));
    sizes.set(TaskManagerOptions.MANAGED_MEMORY_SIZE, MemorySize.ofMebiBytes(230));
    sizes.set(TaskManagerOptions.JVM_METASPACE, MemorySize.ofMebiBytes(256));
    return sizes;
  }

  @Test
  void aWorkerHasItsShareOfWhatTheJvmLeaves() {
    // A container of 4 GiB whose overhead of 1.5 GiB is for workers.
    assertEquals(772 * MIB, WorkerMemory.of(sizes(), 2, 4096 * MIB, 1516 * MIB));
  }

  @Test
  void aWorkerHasAtLeastWhatItNeeds() {
    assertEquals(256 * MIB, WorkerMemory.of(sizes(), 4, 1728 * MIB, 538 * MIB));
  }

  @Test
  void sizesThatAClusterInAProcessLeavesOpenCountAsNothing() {
    Configuration sizes = new Configuration();
    sizes.set(TaskManagerOptions.NETWORK_MEMORY_MAX, MemorySize.MAX_VALUE);
    assertEquals(5952 * MIB, WorkerMemory.of(sizes, 1, 8192 * MIB, 2048 * MIB));
  }
}
