package org.flinkskills.bridge.waits;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
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
 * <p>A map state cannot be read by the first part of its keys. The open waits of a turn and those
 * of a name are therefore lists of numbered entries, so that no answer reads all waits of its key.
 * Methods that do are for restores, and for the end of the inputs.
 *
 * <p>The state exists after the first wait of the operator. A job that never waits has the states
 * of earlier releases.
 */
public final class KeyedWaits {
  public static final String WAITS = "waits";

  private static final String WAIT = "w:";
  private static final String TURN = "p:";

  /** The journal and the session of a waiting turn, which only its resume reads. */
  private static final String CONTENT = "c:";

  /** The number of early answers. */
  private static final String EARLY = "e";

  private static final String LIST_OF_TURN = "t:";
  private static final String LIST_OF_NAME = "n:";

  /** Open waits of a name that accept ids only. */
  private static final String LIST_OF_ID_ONLY = "i:";

  /** The ids in the lists. */
  private static final String ITEM = "l:";

  private final RuntimeContext context;
  private final KeyedStateBackend<String> keys;
  private MapState<String, byte[]> waits;

  /**
   * @param keys the state backend, whose restored state may have waits
   */
  public KeyedWaits(RuntimeContext context, KeyedStateBackend<String> keys) {
    this.context = context;
    this.keys = keys;
    try (Stream<String> found = keys.getKeys(WAITS, VoidNamespace.INSTANCE)) {
      if (found.findAny().isPresent()) {
        waits();
      }
    }
  }

  /** Return the state of a savepoint. */
  public static KeyedWaits ofSavepoint(RuntimeContext context) {
    KeyedWaits found = new KeyedWaits(context);
    found.waits();
    return found;
  }

  private KeyedWaits(RuntimeContext context) {
    this.context = context;
    this.keys = null;
  }

  /** Return true if the state exists. */
  public boolean exist() {
    return waits != null;
  }

  /** Return the keys that have entries. */
  public List<String> keyNames() {
    try (Stream<String> found = keys.getKeys(WAITS, VoidNamespace.INSTANCE)) {
      return found.distinct().toList();
    }
  }

  /** Return a wait or its early answers, or null. */
  public WaitState.Wait wait(String id) throws Exception {
    byte[] bytes = get(WAIT + id);
    return bytes == null ? null : WaitState.Wait.decode(bytes);
  }

  /** Write a wait whose position in the lists stays the same. */
  void put(String id, WaitState.Wait wait) throws Exception {
    waits().put(WAIT + id, wait.encode());
  }

  /** Write an open wait, and add it to the lists of its turn and its name. */
  void add(String id, WaitState.Wait wait) throws Exception {
    long ofTurn = append(LIST_OF_TURN + wait.turn(), id);
    // A sleep has no answers.
    long ofName = wait.isSleep() ? WaitState.NO_POSITION : append(listOfName(wait), id);
    put(id, wait.at(ofTurn, ofName));
  }

  /** Remove an open wait from the lists of its turn and its name. The caller writes its end. */
  void leave(WaitState.Wait wait) throws Exception {
    drop(LIST_OF_TURN + wait.turn(), wait.ofTurn());
    if (wait.ofName() != WaitState.NO_POSITION) {
      drop(listOfName(wait), wait.ofName());
    }
  }

  void remove(String id) throws Exception {
    waits().remove(WAIT + id);
  }

  private static String listOfName(WaitState.Wait wait) {
    return (wait.isIdOnly() ? LIST_OF_ID_ONLY : LIST_OF_NAME) + wait.name();
  }

  /** Return the number of early answers of the key. */
  int early() throws Exception {
    byte[] bytes = get(EARLY);
    return bytes == null ? 0 : WaitState.Positions.decode(bytes).count();
  }

  /** Change the number of early answers of the key. */
  void addEarly(int change) throws Exception {
    // A savepoint of an earlier release has no number.
    int count = Math.max(0, early() + change);
    if (count == 0) {
      waits().remove(EARLY);
    } else {
      putPositions(EARLY, new WaitState.Positions(0, 0, 0, count));
    }
  }

  /**
   * Entries of the key.
   *
   * @param waits waits and early answers, by their ids
   * @param turns turns that have waited and have not ended, by their numbers
   */
  record Entries(Map<String, WaitState.Wait> waits, TreeMap<Long, WaitState.WaitingTurn> turns) {}

  /** Return the waits and the waiting turns of the key. This reads all entries. */
  Entries read() throws Exception {
    Entries found = new Entries(new LinkedHashMap<>(), new TreeMap<>());
    if (waits == null) {
      return found;
    }
    for (Map.Entry<String, byte[]> entry : waits.entries()) {
      String name = entry.getKey();
      if (name.startsWith(WAIT)) {
        found.waits.put(name.substring(WAIT.length()), WaitState.Wait.decode(entry.getValue()));
      } else if (name.startsWith(TURN)) {
        found.turns.put(
            Long.parseLong(name.substring(TURN.length())),
            WaitState.WaitingTurn.decode(entry.getValue()));
      }
    }
    return found;
  }

  /** Return the waits and early answers of the key, by their ids. This reads all entries. */
  public Map<String, WaitState.Wait> all() throws Exception {
    return read().waits();
  }

  /** Return the open waits of a turn by their ids, in the order of their questions. */
  Map<String, WaitState.Wait> open(long turn) throws Exception {
    Map<String, WaitState.Wait> found = new LinkedHashMap<>();
    String list = LIST_OF_TURN + turn;
    WaitState.Positions positions = positions(list);
    for (long at = positions.first(); at < positions.next(); at++) {
      String id = item(list, at);
      if (id != null) {
        found.put(id, wait(id));
      }
    }
    return found;
  }

  /** Return the answers to waits of a turn, the earliest first. */
  public List<Map.Entry<String, WaitState.Answer>> answers(long turn) throws Exception {
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

  /**
   * Return the oldest open wait of a name, or null. Prefer one without an answer.
   *
   * @param idOnly among the waits that accept ids only, instead of the others
   */
  String oldest(String name, boolean idOnly) throws Exception {
    String list = (idOnly ? LIST_OF_ID_ONLY : LIST_OF_NAME) + name;
    WaitState.Positions old = positions(list);
    String found = null;
    long free = old.free();
    for (; free < old.next() && found == null; free++) {
      String id = item(list, free);
      if (id != null && wait(id).isUnanswered()) {
        found = id;
        break;
      }
    }
    if (free != old.free()) {
      // The waits before it have answers, so the next search does not read them.
      putPositions(list, old.withFree(free));
    }
    return found != null || old.count() == 0 ? found : item(list, old.first());
  }

  /** Record that an open wait has no answer any more. */
  void free(WaitState.Wait wait) throws Exception {
    if (wait.ofName() == WaitState.NO_POSITION) {
      return;
    }
    String list = listOfName(wait);
    WaitState.Positions old = positions(list);
    if (wait.ofName() < old.free()) {
      putPositions(list, old.withFree(wait.ofName()));
    }
  }

  private long append(String list, String id) throws Exception {
    WaitState.Positions old = positions(list);
    long position = old.next();
    waits().put(ITEM + position + list, WaitState.encodeText(id));
    putPositions(
        list, new WaitState.Positions(old.first(), old.free(), position + 1, old.count() + 1));
    return position;
  }

  private void drop(String list, long position) throws Exception {
    waits().remove(ITEM + position + list);
    WaitState.Positions old = positions(list);
    if (old.count() <= 1) {
      waits().remove(list);
      return;
    }
    long first = old.first();
    if (position == first) {
      first++;
      while (item(list, first) == null) {
        first++;
      }
    }
    putPositions(
        list,
        new WaitState.Positions(first, Math.max(first, old.free()), old.next(), old.count() - 1));
  }

  private WaitState.Positions positions(String list) throws Exception {
    byte[] bytes = get(list);
    return bytes == null ? WaitState.Positions.NONE : WaitState.Positions.decode(bytes);
  }

  private void putPositions(String list, WaitState.Positions positions) throws Exception {
    waits().put(list, positions.encode());
  }

  private String item(String list, long position) throws Exception {
    byte[] bytes = get(ITEM + position + list);
    return bytes == null ? null : WaitState.decodeText(bytes);
  }

  /** Return a turn that has waited and has not ended, or null. */
  public WaitState.WaitingTurn turn(long number) throws Exception {
    byte[] bytes = get(TURN + number);
    return bytes == null ? null : WaitState.WaitingTurn.decode(bytes);
  }

  /** Return the stored journal and session of a turn that has waited. */
  public WaitState.Content content(long number) throws Exception {
    byte[] bytes = get(CONTENT + number);
    if (bytes != null) {
      return WaitState.Content.decode(bytes);
    }
    bytes = get(TURN + number);
    return bytes == null ? WaitState.Content.NOTHING : WaitState.Content.decodeTurn(bytes);
  }

  public void putTurn(long number, WaitState.WaitingTurn turn, WaitState.Content content)
      throws Exception {
    waits().put(TURN + number, turn.encode());
    if (content.isNothing()) {
      waits().remove(CONTENT + number);
    } else {
      waits().put(CONTENT + number, content.encode());
    }
  }

  public void removeTurn(long number) throws Exception {
    if (waits != null) {
      waits.remove(TURN + number);
      waits.remove(CONTENT + number);
    }
  }

  /** Remove all entries of the key. */
  void clear() {
    waits.clear();
  }

  /** Return the key's turns that have waited and have not ended. This reads all entries. */
  public TreeMap<Long, WaitState.WaitingTurn> turns() throws Exception {
    return read().turns();
  }

  /** Return the numbers of the turns that later events have overtaken. This reads all entries. */
  public Set<Long> overtaken() throws Exception {
    Set<Long> numbers = new HashSet<>();
    turns()
        .forEach(
            (number, turn) -> {
              if (turn.overtaken()) {
                numbers.add(number);
              }
            });
    return numbers;
  }

  /** Add the open waits of an earlier release to the lists. Return the entries of the key. */
  Entries restore() throws Exception {
    List<Map.Entry<String, WaitState.Wait>> missing = new ArrayList<>();
    Entries found = read();
    for (Map.Entry<String, WaitState.Wait> entry : found.waits.entrySet()) {
      if (entry.getValue().isOpen() && entry.getValue().ofTurn() == WaitState.NO_POSITION) {
        missing.add(entry);
      }
    }
    missing.sort(Comparator.comparingLong(of -> of.getValue().since()));
    for (Map.Entry<String, WaitState.Wait> entry : missing) {
      add(entry.getKey(), entry.getValue());
    }
    return found;
  }

  private byte[] get(String entry) throws Exception {
    return waits == null ? null : waits.get(entry);
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
