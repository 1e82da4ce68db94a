package org.flinkskills.bridge;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Which sessions the workers are known to have, so that a long conversation is not sent again with
 * each turn. Bounded: the keys that were longest without a turn are forgotten, and a worker that
 * has forgotten a session itself asks for it.
 */
final class KnownSessions {

  /**
   * @param epoch the worker's epoch that has the session
   * @param version the version it has
   * @param refreshedAt when the session was last written to state as a whole, in milliseconds
   */
  record Known(int epoch, long version, long refreshedAt) {}

  private final Map<String, Known> byKey;

  KnownSessions(int capacity) {
    this.byKey =
        new LinkedHashMap<>(16, 0.75f, true) {
          private static final long serialVersionUID = 1L;

          @Override
          protected boolean removeEldestEntry(Map.Entry<String, Known> eldest) {
            return size() > capacity;
          }
        };
  }

  /** What is known of the key's session at that version, or null. */
  Known find(String key, int epoch, long version) {
    Known known = byKey.get(key);
    return known != null && known.epoch == epoch && known.version == version ? known : null;
  }

  void put(String key, Known known) {
    byKey.put(key, known);
  }

  void forget(String key) {
    byKey.remove(key);
  }
}
