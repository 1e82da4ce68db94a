package org.flinkskills.bridge.waits;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.flinkskills.bridge.AgentTurnException;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.FakeWorkers.Turn;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Answers to waits: which question one counts for, and the error records of the others. */
@Timeout(60)
class WaitAnswersTest extends WaitBench {
  private void reject(FakeWorker worker, Turn turn, String id) {
    worker.change(turn, Frames.WAIT_REJECT, id, "", WaitState.NO_DEADLINE, 0, "", "errors>wrong");
  }

  /** The number of error records that contain a part. */
  private long errors(String part) {
    return agent.emitted("errors").stream().filter(record -> record.contains(part)).count();
  }

  @Test
  void anAnswerBeforeItsQuestionIsKept() throws Exception {
    agent = builder().metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.sendAnswer("a", "w1", "first");
    agent.sendAnswer("a", "w1", "correction");
    agent.send("a", "1");
    Turn turn = worker.takeTurn("1");
    worker.open(turn, "w1", "first");
    agent.await("an answer", () -> worker.receivedAnswers.size() == 1);
    assertEquals("w1=first", worker.receivedAnswers.take().answer());
    reject(worker, turn, "w1");
    agent.await("the next answer", () -> worker.receivedAnswers.size() == 1);
    assertEquals("w1=correction", worker.receivedAnswers.take().answer());
    worker.close(turn, "w1");
    worker.end(turn, "done");
    agent.awaitEmitted(1);
    assertEquals(1, counted("unusedAnswers"));
    agent.setProcessingTime(3_600_001);
    assertEquals(0, agent.keysOf(KeyedWaits.WAITS));
  }

  @Test
  void anAnswerWithANameCountsForAnOpenWaitOnly() throws Exception {
    agent = builder().overtake().metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.sendAnswer("a", "approval", "before its question");
    assertEquals(1, errors("No open wait of its key has this name"));
    assertEquals(1, errors("wait_id"));
    park(worker, "a", "1", "w1");
    agent.sendAnswer("a", "approval", "yes");
    agent.sendAnswer("a", "approval", "doubled");
    Turn resumed = worker.takeTurn("1");
    assertEquals(List.of("w1=yes"), resumed.answers());
    worker.close(resumed, "w1");
    worker.end(resumed, "1");
    agent.awaitEmitted(1);
    assertEquals(1, errors("has an answer already"));
    // The next question of the same name gets none of these answers.
    park(worker, "a", "2", "w2");
    assertTrue(worker.turns.isEmpty());
    park(worker, "a", "3", "w3");
    agent.sendAnswer("a", "approval", "for the second");
    agent.sendAnswer("a", "approval", "for the third");
    assertEquals(List.of("w2=for the second"), worker.takeTurn("2").answers());
  }

  @Test
  void aRejectedAnswerWithANameIsFollowedByTheNextOne() throws Exception {
    agent = builder().overtake().metrics(metrics).open();
    FakeWorker worker = workers.only();
    park(worker, "a", "1", "w1");
    park(worker, "a", "2", "w2");
    agent.sendAnswer("a", "approval", "wrong");
    Turn first = worker.takeTurn("1");
    reject(worker, first, "w1");
    worker.park(first);
    agent.await("both wait", () -> waiting() == 2);
    agent.sendAnswer("a", "approval", "right");
    assertEquals(List.of("w1=right"), worker.takeTurn("1").answers());
  }

  @Test
  void anApprovalAcceptsItsIdOnly() throws Exception {
    agent = builder().metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.send("a", "1");
    Turn turn = worker.takeTurn("1");
    worker.open(turn, "w1", "approval", WaitState.NO_DEADLINE, WaitState.ID_ONLY);
    worker.park(turn);
    agent.await("the turn waits", () -> waiting() == 1);
    agent.sendAnswer("a", "approval", "yes");
    assertEquals(1, errors("An approval accepts its id only"));
    assertTrue(worker.turns.isEmpty());
    agent.sendAnswer("a", "w1", "yes");
    assertEquals(List.of("w1=yes"), worker.takeTurn("1").answers());
  }

  @Test
  void aSleepAcceptsNoAnswer() throws Exception {
    agent = builder().metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.sendAnswer("a", "w1", "early");
    agent.send("a", "1");
    Turn turn = worker.takeTurn("1");
    worker.open(turn, "w1", "sleep", 1000, WaitState.SLEEP);
    worker.park(turn);
    agent.await("the turn waits", () -> waiting() == 1);
    assertEquals(1, errors("A sleep accepts no answer"));
    agent.sendAnswer("a", "w1", "yes");
    assertEquals(2, errors("A sleep accepts no answer"));
    assertEquals(2, counted("unusedAnswers"));
    assertTrue(worker.turns.isEmpty());
    agent.setProcessingTime(1000);
    turn = worker.takeTurn("1");
    assertEquals(List.of("w1=#1"), turn.answers());
    worker.close(turn, "w1");
    worker.end(turn, "done");
    agent.awaitEmitted(1);
    assertEquals(0, agent.keysOf(KeyedWaits.WAITS));
  }

  @Test
  void theCodeCancelsAnApprovalByItsName() throws Exception {
    agent = builder().overtake().metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.send("a", "1");
    Turn turn = worker.takeTurn("1");
    worker.open(turn, "w1", "approval", WaitState.NO_DEADLINE, WaitState.ID_ONLY);
    worker.park(turn);
    agent.await("the turn waits", () -> waiting() == 1);
    agent.send("a", "2");
    Turn other = worker.takeTurn("2");
    worker.change(other, Frames.WAIT_CANCEL, "approval", "", WaitState.NO_DEADLINE, 0, "");
    worker.end(other, "2");
    agent.awaitEmitted(1);
    assertEquals(List.of("w1=#2"), worker.takeTurn("1").answers());
  }

  @Test
  void earlyAnswersOfAKeyAreLimited() throws Exception {
    agent = builder().metrics(metrics).waitsMaxEarly(2).open();
    FakeWorker worker = workers.only();
    for (int i = 1; i <= 4; i++) {
      agent.sendAnswer("a", "w" + i, "early");
    }
    agent.sendAnswer("b", "w1", "early");
    assertEquals(2, errors("skills.waits.max-early = 2"));
    park(worker, "a", "1", "w9");
    for (int i = 0; i < 5; i++) {
      agent.sendAnswer("a", "w9", "many");
    }
    assertEquals(2, errors("2 further answers"));
    Turn turn = worker.takeTurn("1");
    worker.open(turn, "w1", "first");
    agent.await("an answer", () -> worker.receivedAnswers.size() == 1);
    agent.sendAnswer("a", "w5", "there is a place again");
    assertEquals(4, counted("unusedAnswers"));
  }

  @Test
  void everyUnusedAnswerOfATurnIsAnErrorRecord() throws Exception {
    agent = builder().metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.send("a", "1");
    Turn turn = worker.takeTurn("1");
    for (int i = 1; i <= 3; i++) {
      worker.open(turn, "w" + i, "wait " + i);
    }
    worker.park(turn);
    agent.await("the turn waits", () -> waiting() == 1);
    for (int i = 1; i <= 3; i++) {
      agent.sendAnswer("a", "w" + i, "yes");
    }
    turn = worker.takeTurn("1");
    worker.close(turn, "w1");
    worker.change(
        turn, Frames.WAIT_CLOSE, "w2", "", WaitState.NO_DEADLINE, WaitState.UNANSWERED, "closed");
    worker.end(turn, "done");
    agent.awaitEmitted(1);
    assertEquals(1, errors("The wait was cancelled"));
    assertEquals(1, errors("The turn of the wait has ended"));
    assertEquals(2, counted("unusedAnswers"));
    // The worker has written the records of the ends.
    assertEquals(List.of(), agent.emitted("waits"));
  }

  @Test
  void aRejectedEndOfAWaitFailsTheJob() throws Exception {
    agent = builder().metrics(metrics).open();
    FakeWorker worker = workers.only();
    agent.send("a", "1");
    Turn turn = worker.takeTurn("1");
    worker.open(turn, "w1", "approval", 1000, 0);
    worker.park(turn);
    agent.await("the turn waits", () -> waiting() == 1);
    agent.setProcessingTime(1000);
    Turn resumed = worker.takeTurn("1");
    reject(worker, resumed, "w1");
    AgentTurnException failure =
        assertThrows(
            AgentTurnException.class, () -> agent.await("a failure", () -> waiting() == 9));
    assertTrue(failure.getMessage().contains("only answers can be rejected"));
    agent.close();
    agent = null;
  }
}
