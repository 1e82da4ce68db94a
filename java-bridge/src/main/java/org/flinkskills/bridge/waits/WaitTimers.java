package org.flinkskills.bridge.waits;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.apache.flink.streaming.api.operators.InternalTimerService;
import org.apache.flink.streaming.runtime.tasks.ProcessingTimeService;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Timers of waits. The namespace of a timer is the id of its wait.
 *
 * <p>A wait in event time ends with the watermark. Without watermarks it would block its key
 * without a message, so a warning names it.
 *
 * <p>The timer service exists after the first wait, because it is a part of the state.
 */
public final class WaitTimers {
  /** The time without a watermark after which a wait in event time is reported. */
  static final long SILENCE_MS = 60_000;

  private static final Logger LOG = LoggerFactory.getLogger(WaitTimers.class);
  private static final int MAX_WATCHED = 100;

  private final Supplier<InternalTimerService<String>> factory;
  private final LongSupplier watermark;
  private final ProcessingTimeService clock;
  private final WaitLookup lookup;
  private InternalTimerService<String> timers;

  /** The keys of some open waits in event time, by their ids. */
  private final Map<String, String> watched = new LinkedHashMap<>();

  /** The watermark at the last check; null while no check is planned. */
  private Long checked;

  /** Reads a wait of any key. */
  public interface WaitLookup {
    WaitState.Wait find(String key, String id) throws Exception;
  }

  /**
   * @param factory creates the timer service
   * @param watermark the last watermark that the operator has emitted, which a new timer service
   *     does not have
   * @param clock plans the checks for watermarks
   * @param lookup reads the waits that a check reports
   */
  public WaitTimers(
      Supplier<InternalTimerService<String>> factory,
      LongSupplier watermark,
      ProcessingTimeService clock,
      WaitLookup lookup) {
    this.factory = factory;
    this.watermark = watermark;
    this.clock = clock;
    this.lookup = lookup;
  }

  /** Report an open wait in event time if no watermark arrives. */
  void watch(String key, String id, WaitState.Wait wait) {
    if (!wait.isEventTime() || watched.size() >= MAX_WATCHED) {
      return;
    }
    watched.put(id, key);
    if (checked == null) {
      planCheck();
    }
  }

  private void planCheck() {
    checked = watermark.getAsLong();
    clock.registerTimer(clock.getCurrentProcessingTime() + SILENCE_MS, time -> check());
  }

  private void check() throws Exception {
    boolean isSilent = checked == watermark.getAsLong();
    checked = null;
    String first = null;
    for (String id : watched.keySet().toArray(new String[0])) {
      WaitState.Wait wait = lookup.find(watched.get(id), id);
      if (wait == null || !wait.isUnanswered()) {
        watched.remove(id);
      } else if (first == null && isSilent) {
        first = id;
        LOG.warn(blocked(id, wait));
      }
    }
    if (first != null) {
      // The next wait in event time plans the next check.
      watched.clear();
    } else if (!watched.isEmpty()) {
      planCheck();
    }
  }

  private String blocked(String id, WaitState.Wait wait) {
    long last = watermark.getAsLong();
    return String.format(
        "The wait '%s' (%s) of key %s, turn %d, continues to block its turn: it ends at %d in event"
            + " time, and no watermark has arrived for %d s (%s). Assign timestamps and watermarks"
            + " to the events, with_idleness included if sources can be idle, or wait without"
            + " event_time=True.",
        wait.name(),
        id,
        watched.get(id),
        wait.turn() + 1,
        wait.deadline(),
        SILENCE_MS / 1000,
        last == Long.MIN_VALUE ? "none has arrived at all" : "the last one is " + last);
  }

  /** Create the timer service, so that restored timers fire. */
  void open() {
    if (timers == null) {
      timers = factory.get();
    }
  }

  /** Return true if a wait's deadline has passed in event time, so that no timer fires. */
  boolean isPast(WaitState.Wait wait) {
    return wait.isEventTime() && wait.deadline() <= watermark.getAsLong();
  }

  /** Register the timer of a wait of the current key, if the wait has a deadline. */
  void register(String id, WaitState.Wait wait) {
    open();
    if (wait.deadline() == WaitState.NO_DEADLINE) {
      return;
    }
    if (wait.isEventTime()) {
      timers.registerEventTimeTimer(id, wait.deadline());
    } else {
      timers.registerProcessingTimeTimer(id, wait.deadline());
    }
  }

  /** Delete the timer of a wait of the current key. */
  void delete(String id, WaitState.Wait wait) {
    open();
    if (wait.deadline() == WaitState.NO_DEADLINE) {
      return;
    }
    if (wait.isEventTime()) {
      timers.deleteEventTimeTimer(id, wait.deadline());
    } else {
      timers.deleteProcessingTimeTimer(id, wait.deadline());
    }
  }
}
