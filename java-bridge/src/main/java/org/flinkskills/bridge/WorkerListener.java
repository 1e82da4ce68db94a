package org.flinkskills.bridge;

import java.util.List;

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

  /**
   * The worker is the operator's alone, until the turns of {@link WorkerLane#startExclusive} have
   * ended.
   */
  void onExclusive(int worker, int epoch);

  /** What a worker reports of the plan; goes to one operator of the plan only. */
  void onMetrics(int worker, WorkerReport report);

  /** What a worker tells of the plan outside of turns; goes to one operator of the plan only. */
  void onEvents(List<byte[]> events);

  /** The pool is of no more use. */
  void onFailure(Exception failure);
}
