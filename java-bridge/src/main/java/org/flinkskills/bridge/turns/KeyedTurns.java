package org.flinkskills.bridge.turns;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.LongSupplier;
import org.apache.flink.api.common.functions.RuntimeContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.waits.KeyedWaits;

/**
 * Keyed state of an agent. Every method accesses the operator's current key.
 *
 * <ul>
 *   <li>{@code turns}: the counters of a key that has a session, see {@link TurnState.Counters}
 *   <li>{@code idle}: the counters of a key that has none. They expire, so that the state of keys
 *       without further events is removed
 *   <li>{@code pending}: events that have not ended, by number, see {@link TurnState.Event}
 *   <li>{@code journal}: the finished steps of the unfinished turn
 *   <li>{@code session}: the conversation, in chunks
 * </ul>
 *
 * <p>With a time to live, the counters determine the age of a key. A key whose counters have
 * expired starts without a session. Chunks of a session are written at different times, and must
 * expire together. So {@code session} has twice the time to live, and a key in use writes it as a
 * whole again at least every half time to live.
 *
 * <p>The counters can expire while events are pending, if the job was down. The numbers of events
 * and turns are then derived from {@code pending}, because an event's number is one less than its
 * turn's. Only the session is lost.
 */
public final class KeyedTurns {
  public static final String PENDING = "pending";

  /** The entry of {@code pending} for a key to erase: the number of the first event that stays. */
  private static final Long FORGET = ActiveKey.FORGET;

  /** The time to live of counters of keys without a session, if sessions have none. */
  private static final long IDLE_MS = Duration.ofDays(30).toMillis();

  private static final TypeInformation<byte[]> BYTES =
      PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO;

  private final ValueState<byte[]> turns;
  private final ValueState<byte[]> idle;
  private final MapState<Long, byte[]> pending;
  private final ListState<byte[]> journal;
  private final KeyedSession session;
  private final LongSupplier clock;
  private final long ttlMs;
  private final long idleMs;

  /**
   * @param clock processing time in milliseconds
   * @param ttlMs the time in milliseconds after which the session of an idle key expires; 0 means
   *     never
   */
  public KeyedTurns(RuntimeContext context, LongSupplier clock, long ttlMs) {
    this(context, clock, ttlMs, ttlMs > 0 ? ttlMs : IDLE_MS);
  }

  /** Return the state of a savepoint, in which no read removes an expired entry. */
  public static KeyedTurns ofSavepoint(RuntimeContext context, boolean expiring) {
    long agesMs = Duration.ofDays(36_500).toMillis();
    return new KeyedTurns(context, System::currentTimeMillis, expiring ? agesMs : 0, agesMs);
  }

  private KeyedTurns(RuntimeContext context, LongSupplier clock, long ttlMs, long idleMs) {
    this.clock = clock;
    this.ttlMs = ttlMs;
    this.idleMs = idleMs;
    idle = context.getState(expiring(new ValueStateDescriptor<>("idle", BYTES), idleMs));
    turns = context.getState(expiring(new ValueStateDescriptor<>("turns", BYTES), ttlMs));
    ListStateDescriptor<byte[]> chunks = new ListStateDescriptor<>("session", BYTES);
    session = new KeyedSession(context.getListState(expiring(chunks, 2 * ttlMs)), clock, ttlMs);
    pending = context.getMapState(new MapStateDescriptor<>(PENDING, Types.LONG, BYTES));
    journal = context.getListState(new ListStateDescriptor<>("journal", BYTES));
  }

  private static <D extends StateDescriptor<?, ?>> D expiring(D descriptor, long ttlMs) {
    if (ttlMs > 0) {
      descriptor.enableTimeToLive(
          StateTtlConfig.newBuilder(Duration.ofMillis(ttlMs))
              .setUpdateType(StateTtlConfig.UpdateType.OnCreateAndWrite)
              .setStateVisibility(StateTtlConfig.StateVisibility.NeverReturnExpired)
              .build());
    }
    return descriptor;
  }

  /**
   * Load a key without unfinished events in memory. Its events in the state wait behind a waiting
   * turn.
   */
  ActiveKey load(String name, KeyedWaits waits) throws Exception {
    ActiveKey key = find(name);
    if (key != null) {
      return key;
    }
    // The counters can expire while a turn of the key waits.
    return start(name, waits.exist() ? countersFromPending(waits) : TurnState.Counters.NONE);
  }

  /** Load a key with unfinished events. */
  ActiveKey restore(String name, KeyedWaits waits) throws Exception {
    ActiveKey key = find(name);
    if (key == null) {
      key = start(name, countersFromPending(waits));
    }
    key.hasJournal = true;
    byte[] forget = pending.get(FORGET);
    if (forget != null) {
      key.forgetBefore = TurnState.decodeForget(forget);
    }
    return key;
  }

  private ActiveKey find(String name) throws Exception {
    byte[] bytes = idle.value();
    boolean hasSession = bytes == null;
    if (hasSession) {
      bytes = turns.value();
    }
    if (bytes == null) {
      return null;
    }
    ActiveKey key =
        new ActiveKey(name, TurnState.Counters.decode(bytes), hasSession, clock.getAsLong());
    if (hasSession && key.sessionVersion == 0) {
      // An earlier release has written all counters to this state.
      key.hasSession = false;
      key.moves = true;
    }
    return key;
  }

  private ActiveKey start(String name, TurnState.Counters counters) throws Exception {
    session.start(name);
    return new ActiveKey(name, counters, false, clock.getAsLong());
  }

  private TurnState.Counters countersFromPending(KeyedWaits waits) throws Exception {
    List<Long> numbers = new ArrayList<>();
    pending.keys().forEach(numbers::add);
    numbers.remove(FORGET);
    if (numbers.isEmpty()) {
      return TurnState.Counters.NONE;
    }
    long tail = Collections.max(numbers) + 1;
    // No event waits behind these turns.
    numbers.removeAll(waits.overtaken());
    long first = numbers.isEmpty() ? tail : Collections.min(numbers);
    return new TurnState.Counters(first, first, tail, 0);
  }

  /** Write the format's marker to the current key. */
  void writeMarker() throws Exception {
    byte[] version = {StateFormat.VERSION};
    turns.update(version);
    pending.put(0L, version);
  }

  /** Check the format's marker in the current key. */
  public void checkMarker() throws Exception {
    StateFormat.check(pending.get(0L));
  }

  /** Append an event to the unfinished events of the key. */
  void append(ActiveKey key, byte[] event) throws Exception {
    pending.put(key.tail, event);
    if (key.head == key.tail) {
      key.first = event;
    }
    key.tail++;
    writeCounters(key);
  }

  /** Release the memory of an event whose turn has not started. The event remains in the state. */
  void releaseFirst(ActiveKey key) {
    key.first = null;
  }

  /** Return an unfinished event. A new event is not read from the state. */
  TurnState.Event event(ActiveKey key, long number) throws Exception {
    boolean isFirst = number == key.head && key.first != null;
    byte[] event = isFirst ? key.first : pending.get(number);
    if (isFirst) {
      key.first = null;
    }
    if (event == null) {
      throw new IllegalStateException(
          String.format(
              "Event %d of key %s is missing from the keyed state 'pending', although only turns up"
                  + " to %d have ended. The savepoint is damaged; restore from another one.",
              number, key.name, key.turnsDone));
    }
    return TurnState.Event.decode(event);
  }

  /** Let the next events overtake the first one, whose turn waits. Return its journal. */
  List<byte[]> overtake(ActiveKey key) throws Exception {
    List<byte[]> steps = takeJournal(key);
    advance(key);
    writeCounters(key);
    return steps;
  }

  /** Remove the journal of a turn from the state, and return it. */
  List<byte[]> takeJournal(ActiveKey key) throws Exception {
    List<byte[]> steps = journal(key);
    clearJournal(key);
    return steps;
  }

  /** Write the journal of a turn that resumes. */
  void putJournal(ActiveKey key, List<byte[]> steps) throws Exception {
    journal.update(steps);
    key.hasJournal = true;
  }

  /** Write a session again that has expired while a turn waited. */
  void putSession(ActiveKey key, List<byte[]> chunks) throws Exception {
    session.apply(key, Frames.SESSION_REPLACE, chunks);
    writeCounters(key);
  }

  private static void advance(ActiveKey key) {
    key.first = null;
    key.head++;
    key.turnsDone++;
  }

  /** Return the number of ended turns of the current key. */
  public long turnsDone() throws Exception {
    byte[] bytes = idle.value();
    if (bytes == null) {
      bytes = turns.value();
    }
    return bytes == null ? 0 : TurnState.Counters.decode(bytes).turnsDone();
  }

  /** Return the unfinished events of the current key, in their order. */
  public List<byte[]> unfinished() throws Exception {
    TreeMap<Long, byte[]> byNumber = new TreeMap<>();
    for (Map.Entry<Long, byte[]> entry : pending.entries()) {
      if (!FORGET.equals(entry.getKey())) {
        byNumber.put(entry.getKey(), entry.getValue());
      }
    }
    return new ArrayList<>(byNumber.values());
  }

  /** Return the sessions. */
  public KeyedSession session() {
    return session;
  }

  public List<byte[]> journal() throws Exception {
    return KeyedSession.listOf(journal);
  }

  /** Return the finished steps of the key's unfinished turn. */
  public List<byte[]> journal(ActiveKey key) throws Exception {
    return key.hasJournal ? journal() : List.of();
  }

  /** Write a finished step to the journal. */
  void step(ActiveKey key, boolean clearJournal, byte[] entry) throws Exception {
    if (clearJournal) {
      clearJournal(key);
    }
    if (entry.length > 0) {
      journal.add(entry);
      key.hasJournal = true;
    }
    if (KeyedSession.isStale(clock, key.countersWrittenAt, key.hasSession ? ttlMs : idleMs)) {
      writeCounters(key);
    }
  }

  /** End the turn of an unfinished event. */
  void end(ActiveKey key, long number, int epoch, int sessionOp, List<byte[]> chunks)
      throws Exception {
    session.apply(key, sessionOp, chunks);
    clearJournal(key);
    pending.remove(number);
    if (number == key.head) {
      advance(key);
    }
    writeCounters(key);
    session.remember(key, epoch);
  }

  /** Write that the key is to be erased before its next turn. */
  void putForget(ActiveKey key) throws Exception {
    pending.put(FORGET, TurnState.encodeForget(key.forgetBefore));
  }

  /** Erase the session, the journal, and the events up to {@code key.forgetBefore}. */
  void erase(ActiveKey key) throws Exception {
    List<Long> numbers = new ArrayList<>();
    pending.keys().forEach(numbers::add);
    for (Long number : numbers) {
      if (number < key.forgetBefore) {
        pending.remove(number);
      }
    }
    journal.clear();
    key.hasJournal = false;
    session.erase(key.name);
    turns.clear();
    idle.clear();
    key.first = null;
    key.moves = key.hasSession = false;
    key.sessionVersion = 0;
    if (key.forgetBefore >= key.tail) {
      key.turnsDone = key.head = key.tail = 0;
      return;
    }
    key.turnsDone = key.head = key.forgetBefore;
    writeCounters(key);
  }

  private void clearJournal(ActiveKey key) {
    if (key.hasJournal) {
      journal.clear();
      key.hasJournal = false;
    }
  }

  private void writeCounters(ActiveKey key) throws Exception {
    TurnState.Counters counters =
        new TurnState.Counters(key.turnsDone, key.head, key.tail, key.sessionVersion);
    (key.hasSession ? turns : idle).update(counters.encode());
    if (key.moves) {
      key.moves = false;
      (key.hasSession ? idle : turns).clear();
    }
    key.countersWrittenAt = clock.getAsLong();
  }
}
