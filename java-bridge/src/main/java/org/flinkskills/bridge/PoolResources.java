package org.flinkskills.bridge;

import java.io.IOException;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Resources of a pool. The pool copies each of them out of the job's jars one time. */
final class PoolResources {
  private final Path target;
  private final Map<String, List<String>> copies = new HashMap<>();

  /**
   * @param target the directory of the copies
   */
  PoolResources(Path target) {
    this.target = target;
  }

  /** Return the paths of the copies of each resource. */
  synchronized Map<String, List<String>> paths(
      List<String> names, JobResources.Limits limits, ClassLoader classLoader)
      throws IOException, AgentOpenException {
    Map<String, List<String>> paths = new LinkedHashMap<>();
    for (String name : names) {
      if (!copies.containsKey(name)) {
        copies.put(
            name, JobResources.materialise(name, copies.size(), classLoader, target, limits));
      }
      paths.put(name, copies.get(name));
    }
    return paths;
  }
}
