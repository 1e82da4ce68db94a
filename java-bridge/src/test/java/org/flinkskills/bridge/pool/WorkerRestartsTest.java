package org.flinkskills.bridge.pool;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.flinkskills.bridge.pool.WorkerRestarts.Ended;
import org.junit.jupiter.api.Test;

class WorkerRestartsTest {
  private static final Ended NEVER_OPEN = new Ended(false, 0, false, false);
  private static final Ended OPEN_AND_IDLE = new Ended(true, 500, false, false);
  private static final Ended WITH_TURNS = new Ended(true, 500, true, false);
  private static final Ended WITH_PROGRESS = new Ended(true, 500, true, true);
  private static final Ended OPEN_FOR_LONG = new Ended(true, 60_000, false, false);

  private final WorkerRestarts restarts = new WorkerRestarts();

  @Test
  void pausesGrowUntilAWorkerIsGivenUp() {
    restarts.pauseAfter(WITH_PROGRESS);
    long before = 0;
    for (int i = 1; i < WorkerRestarts.MAX_FAILED_STARTS; i++) {
      long pause = restarts.pauseAfter(i % 2 == 0 ? OPEN_AND_IDLE : NEVER_OPEN);
      assertTrue(pause > before, pause + " after " + before);
      before = pause;
    }
    assertEquals(WorkerRestarts.GIVE_UP, restarts.pauseAfter(OPEN_AND_IDLE));
    assertEquals(WorkerRestarts.MAX_FAILED_STARTS, restarts.failedStarts());
  }

  @Test
  void aWorkerThatWasNeverOpenIsGivenUpEarlier() {
    for (int i = 1; i < WorkerRestarts.MAX_FAILED_FIRST_STARTS; i++) {
      assertTrue(restarts.pauseAfter(NEVER_OPEN) > 0);
    }
    assertEquals(WorkerRestarts.GIVE_UP, restarts.pauseAfter(NEVER_OPEN));
  }

  @Test
  void healthEndsTheCount() {
    for (Ended health : new Ended[] {WITH_PROGRESS, OPEN_FOR_LONG}) {
      for (int i = 0; i < 100; i++) {
        assertTrue(restarts.pauseAfter(OPEN_AND_IDLE) > 0);
        assertTrue(restarts.onProbation());
        assertEquals(0, restarts.pauseAfter(health));
        assertFalse(restarts.onProbation());
      }
    }
  }

  @Test
  void turnsMayBeTheCauseSoTheyDoNotFailTheJob() {
    assertEquals(0, restarts.pauseAfter(WITH_TURNS));
    assertFalse(restarts.onProbation());
    assertEquals(0, restarts.pauseAfter(WITH_TURNS));
    for (int i = 0; i < 1000; i++) {
      assertTrue(restarts.onProbation());
      long pause = restarts.pauseAfter(WITH_TURNS);
      assertTrue(pause > 0 && pause <= 1250, "" + pause);
    }
  }
}
