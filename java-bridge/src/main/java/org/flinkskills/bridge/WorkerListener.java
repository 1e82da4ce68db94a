package org.flinkskills.bridge;

import java.util.List;
import java.util.Map;

/**
 * What a pool tells one operator instance. The calls come from the pool's threads and must return
 * at once: the operator hands them to its mailbox.
 */
interface WorkerListener {

  /** Answers of one worker, in their order. */
  void onFrames(int worker, int epoch, List<Frames.Frame> frames);

  /** The worker has opened the operator's plan and takes turns. */
  void onReady(int worker, int epoch);

  /** The worker is gone, and with it everything it was given in that epoch. */
  void onLost(int worker, int epoch);

  /** The operator was refused by {@link WorkerLane#tryStart} and may try again. */
  void onLaneFree(int worker);

  /** The worker is the operator's alone, until {@link WorkerLane#releaseExclusive}. */
  void onExclusive(int worker, int epoch);

  /** The latest figures of a worker for the plan; goes to one operator of the plan only. */
  void onMetrics(int worker, Map<String, Number> figures);

  /** The pool is of no more use. */
  void onFailure(Exception failure);
}
