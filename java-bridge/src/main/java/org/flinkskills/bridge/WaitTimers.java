package org.flinkskills.bridge;

import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.apache.flink.streaming.api.operators.InternalTimerService;

/**
 * Timers of waits. The namespace of a timer is the id of its wait.
 *
 * <p>The timer service exists after the first wait, because it is a part of the state.
 */
final class WaitTimers {
  private final Supplier<InternalTimerService<String>> factory;
  private final LongSupplier watermark;
  private InternalTimerService<String> timers;

  /**
   * @param factory creates the timer service
   * @param watermark the last watermark that the operator has emitted, which a new timer service
   *     does not know
   */
  WaitTimers(Supplier<InternalTimerService<String>> factory, LongSupplier watermark) {
    this.factory = factory;
    this.watermark = watermark;
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
