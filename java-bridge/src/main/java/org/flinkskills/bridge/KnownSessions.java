package org.flinkskills.bridge;

import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Bounded cache of the sessions that the workers have, so that a long conversation is not sent with
 * each turn. It evicts the keys without a recent turn. A worker that has evicted a session requests
 * it.
 */
final class KnownSessions {

  /**
   * @param epoch the epoch of the worker that has the session
   * @param version the version of the session in the worker
   * @param refreshedAt the time of the last complete write of the session to the state, in
   *     milliseconds
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

  /** Return the entry for the key's session at that version, or null. */
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
