package org.flinkskills.bridge.processes;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.PipedInputStream;
import java.io.PipedOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.LogEvent;
import org.apache.logging.log4j.core.Logger;
import org.apache.logging.log4j.core.appender.AbstractAppender;
import org.apache.logging.log4j.core.config.Property;
import org.flinkskills.bridge.kit.Waiting;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

class WorkerLogTest {
  private static final JobID JOB = new JobID();

  private record Line(Level level, String text, Map<String, String> fields) {}

  private final List<Line> lines = new ArrayList<>();
  private final Logger logger = (Logger) LogManager.getLogger("org.flinkskills.worker");
  private final AbstractAppender appender =
      new AbstractAppender("kept", null, null, true, Property.EMPTY_ARRAY) {
        @Override
        public void append(LogEvent event) {
          lines.add(
              new Line(
                  event.getLevel(),
                  event.getMessage().getFormattedMessage(),
                  new TreeMap<>(event.getContextData().toMap())));
        }
      };

  @BeforeEach
  void listen() {
    appender.start();
    logger.addAppender(appender);
    logger.setLevel(Level.DEBUG);
  }

  @AfterEach
  void stopListening() {
    logger.removeAppender(appender);
    appender.stop();
  }

  private WorkerLog read(String text) {
    return read(text, null);
  }

  private WorkerLog read(String text, PrintStream prints) {
    WorkerLog log =
        new WorkerLog(
            "w",
            JOB,
            new ByteArrayInputStream(text.getBytes(StandardCharsets.UTF_8)),
            millis -> true,
            prints);
    log.run();
    return log;
  }

  @Test
  void printsAreShownAsWholeLinesAndTheLogIsNot() {
    ByteArrayOutputStream shown = new ByteArrayOutputStream();
    String wide = "ä".repeat(20_000);
    WorkerLog log =
        read(
            "\u001eWARN flink_skills.turn: logged\nprinted\n\nERROR of a print\n"
                + wide
                + "\nno end\u001eINFO x\nlast without an end",
            new PrintStream(shown));
    assertEquals(
        "printed\n\nERROR of a print\n" + wide + "\nno end\nlast without an end\n",
        shown.toString(StandardCharsets.UTF_8));
    assertEquals(
        List.of(
            "flink_skills.turn: logged",
            "printed",
            "",
            "of a print",
            "ä".repeat(8192),
            "no end",
            "x",
            "last without an end"),
        log.tail());
    assertEquals(Level.WARN, lines.get(0).level());
  }

  @Test
  void fieldsAreInTheContextAndBehindTheText() {
    WorkerLog log =
        read("WARN {agent=triage key=2f1a turn=3 step=chat#0/t0.0} flink_skills.turn: x {a=b}\n");
    assertEquals(
        List.of(
            new Line(
                Level.WARN,
                "w: flink_skills.turn: x {a=b} [agent=triage key=2f1a turn=3 step=chat#0/t0.0]",
                new TreeMap<>(
                    Map.of(
                        "agent",
                        "triage",
                        "key",
                        "2f1a",
                        "turn",
                        "3",
                        "step",
                        "chat#0/t0.0",
                        "flink-job-id",
                        JOB.toHexString())))),
        lines);
    assertEquals(1, log.tail().size());
  }

  @Test
  void aLineThatGoesOnHasFieldsInTheContextOnly() {
    read("ERROR {turn=3} a: failed\nERROR +{turn=3} Traceback\n");
    assertEquals(
        List.of("w: a: failed [turn=3]", "w: Traceback"), lines.stream().map(Line::text).toList());
    assertEquals("3", lines.get(1).fields().get("turn"));
  }

  @Test
  @Timeout(60)
  void readingEndsWithTheProcessAlthoughAnotherOneHasThePipe() throws Exception {
    PipedInputStream pipe = new PipedInputStream();
    PipedOutputStream writer = new PipedOutputStream(pipe);
    CountDownLatch exited = new CountDownLatch(1);
    WorkerLog log =
        new WorkerLog("w", JOB, pipe, millis -> exited.await(millis, TimeUnit.MILLISECONDS), null);
    Thread reader = new Thread(log, "reader of a log");
    reader.start();
    writer.write("first\nsec".getBytes(StandardCharsets.UTF_8));
    Waiting.until("the first line", () -> log.tail().equals(List.of("first")));
    writer.write("ond\n".getBytes(StandardCharsets.UTF_8));
    Waiting.until("the second line", () -> log.tail().size() == 2);
    writer.write("last words\nand a part".getBytes(StandardCharsets.UTF_8));
    exited.countDown();
    reader.join();
    assertEquals(List.of("first", "second", "last words", "and a part"), log.tail());
  }

  @Test
  @Timeout(60)
  void aProcessThatWritesOnAndOnIsNotReadForEver() {
    InputStream endless =
        new InputStream() {
          @Override
          public int available() {
            return 1 << 20;
          }

          @Override
          public int read() {
            return 'y';
          }

          @Override
          public int read(byte[] bytes, int offset, int length) {
            Arrays.fill(bytes, offset, offset + length, (byte) 'y');
            return length;
          }
        };
    WorkerLog log = new WorkerLog("w", JOB, endless, millis -> true, null);
    log.run();
    assertEquals(1, log.tail().size());
  }

  @Test
  void otherLinesAreLeftAsTheyAreAndHaveTheJobOnly() {
    String[] others = {
      "{turn=3} a print", "INFO {not fields} x", "INFO {\"turn\": 3} y", "DEBUG z", ""
    };
    read(String.join("\n", others) + "\n");
    assertEquals(
        List.of("w: {turn=3} a print", "w: {not fields} x", "w: {\"turn\": 3} y", "w: z", "w: "),
        lines.stream().map(Line::text).toList());
    assertEquals(Level.DEBUG, lines.get(3).level());
    lines.forEach(line -> assertEquals(Map.of("flink-job-id", JOB.toHexString()), line.fields()));
  }
}
