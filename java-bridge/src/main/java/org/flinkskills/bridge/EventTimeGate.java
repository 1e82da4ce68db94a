package org.flinkskills.bridge;

import java.util.ArrayDeque;
import java.util.Deque;
import org.apache.flink.util.function.ThrowingRunnable;

/**
 * Holds watermarks and watermark status back until every event that was accepted before them has
 * ended, and lets them pass in their order.
 */
final class EventTimeGate {

  /** The events between two held elements. */
  static final class Epoch {
    private int open;
    private ThrowingRunnable<Exception> closing;
    private boolean closedByWatermark;
  }

  private final Deque<Epoch> epochs = new ArrayDeque<>();

  EventTimeGate() {
    epochs.add(new Epoch());
  }

  /** Counts an event in, and answers what {@link #ended} wants for it. */
  Epoch accept() {
    Epoch epoch = epochs.getLast();
    epoch.open++;
    return epoch;
  }

  /** The event has ended, and its outputs are emitted. */
  void ended(Epoch epoch) throws Exception {
    epoch.open--;
    release();
  }

  void watermark(ThrowingRunnable<Exception> emit) throws Exception {
    pass(emit, true);
  }

  void status(ThrowingRunnable<Exception> emit) throws Exception {
    pass(emit, false);
  }

  private void pass(ThrowingRunnable<Exception> emit, boolean watermark) throws Exception {
    Epoch last = epochs.removeLast();
    Epoch before = epochs.peekLast();
    if (watermark && last.open == 0 && before != null && before.closedByWatermark) {
      // Nothing happened since the watermark before, so the newer one says it all.
      before.closing = emit;
    } else {
      last.closing = emit;
      last.closedByWatermark = watermark;
      epochs.addLast(last);
      last = new Epoch();
    }
    epochs.addLast(last);
    release();
  }

  private void release() throws Exception {
    Epoch first;
    while ((first = epochs.getFirst()).open == 0 && first.closing != null) {
      epochs.removeFirst();
      first.closing.run();
    }
  }
}
