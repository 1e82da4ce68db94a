package org.flinkskills.bridge;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.flink.api.common.functions.RuntimeContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.VoidNamespace;

/**
 * Keyed state {@code waits}: waits, early answers and waiting turns. Methods access the operator's
 * current key.
 *
 * <p>The state exists after the first wait of the operator. A job that never waits has the states
 * of earlier releases.
 */
final class KeyedWaits {
  static final String WAITS = "waits";

  private static final String WAIT = "w:";
  private static final String TURN = "p:";

  private final RuntimeContext context;
  private final KeyedStateBackend<String> keys;
  private MapState<String, byte[]> waits;

  /**
   * @param keys the state backend, whose restored state may have waits
   */
  KeyedWaits(RuntimeContext context, KeyedStateBackend<String> keys) {
    this.context = context;
    this.keys = keys;
    if (!keyNames().isEmpty()) {
      waits();
    }
  }

  /** Return the state of a savepoint. */
  static KeyedWaits ofSavepoint(RuntimeContext context) {
    KeyedWaits found = new KeyedWaits(context);
    found.waits();
    return found;
  }

  private KeyedWaits(RuntimeContext context) {
    this.context = context;
    this.keys = null;
  }

  /** Return true if the state exists. */
  boolean exist() {
    return waits != null;
  }

  /** Return the keys that have entries. */
  List<String> keyNames() {
    try (Stream<String> found = keys.getKeys(WAITS, VoidNamespace.INSTANCE)) {
      return found.distinct().toList();
    }
  }

  /** Return a wait or an early answer, or null. */
  WaitState.Wait wait(String id) throws Exception {
    byte[] bytes = waits == null ? null : waits.get(WAIT + id);
    return bytes == null ? null : WaitState.Wait.decode(bytes);
  }

  void put(String id, WaitState.Wait wait) throws Exception {
    waits().put(WAIT + id, wait.encode());
  }

  void remove(String id) throws Exception {
    waits().remove(WAIT + id);
  }

  /** Return the waits and early answers of the key, by their ids. */
  Map<String, WaitState.Wait> all() throws Exception {
    Map<String, WaitState.Wait> found = new LinkedHashMap<>();
    if (waits != null) {
      for (Map.Entry<String, byte[]> entry : waits.entries()) {
        if (entry.getKey().startsWith(WAIT)) {
          String id = entry.getKey().substring(WAIT.length());
          found.put(id, WaitState.Wait.decode(entry.getValue()));
        }
      }
    }
    return found;
  }

  /** Return the ids of the open waits of a turn. */
  Map<String, WaitState.Wait> open(long turn) throws Exception {
    Map<String, WaitState.Wait> found = all();
    found.values().removeIf(of -> of.status() != WaitState.Status.OPEN || of.turn() != turn);
    return found;
  }

  /** Return the answers to waits of a turn, the earliest first. */
  List<Map.Entry<String, WaitState.Answer>> answers(long turn) throws Exception {
    List<Map.Entry<String, WaitState.Answer>> found = new ArrayList<>();
    open(turn)
        .forEach(
            (id, wait) -> {
              if (wait.answer() != null) {
                found.add(Map.entry(id, wait.answer()));
              }
            });
    found.sort((one, other) -> Long.compare(one.getValue().at(), other.getValue().at()));
    return found;
  }

  /** Return a turn that has waited and has not ended, or null. */
  WaitState.WaitingTurn turn(long number) throws Exception {
    byte[] bytes = waits == null ? null : waits.get(TURN + number);
    return bytes == null ? null : WaitState.WaitingTurn.decode(bytes);
  }

  void putTurn(long number, WaitState.WaitingTurn turn) throws Exception {
    waits().put(TURN + number, turn.encode());
  }

  void removeTurn(long number) throws Exception {
    if (waits != null) {
      waits.remove(TURN + number);
    }
  }

  /** Return the key's turns that have waited and have not ended, by their numbers. */
  TreeMap<Long, WaitState.WaitingTurn> turns() throws Exception {
    TreeMap<Long, WaitState.WaitingTurn> found = new TreeMap<>();
    if (waits != null) {
      for (Map.Entry<String, byte[]> entry : waits.entries()) {
        if (entry.getKey().startsWith(TURN)) {
          long number = Long.parseLong(entry.getKey().substring(TURN.length()));
          found.put(number, WaitState.WaitingTurn.decode(entry.getValue()));
        }
      }
    }
    return found;
  }

  private MapState<String, byte[]> waits() {
    if (waits == null) {
      waits =
          context.getMapState(
              new MapStateDescriptor<>(
                  WAITS, Types.STRING, PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
    }
    return waits;
  }
}
