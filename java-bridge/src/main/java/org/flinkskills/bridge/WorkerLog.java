package org.flinkskills.bridge;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.api.common.JobID;
import org.apache.flink.util.MdcUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.slf4j.MDC;
import org.slf4j.event.Level;

/**
 * Forwards a worker's log lines to the TaskManager's log and keeps the last ones for error
 * messages. A line that starts with {@code ERROR}, {@code WARN}, {@code INFO} or {@code DEBUG} and
 * a space is logged at that level, any other one (a library's print) at INFO.
 *
 * <p>After the level may stand fields, <code>{agent=triage key=2f1a… turn=3} </code>: they go into
 * SLF4J's MDC, beside Flink's own job id, and behind the text, so that layouts with and without MDC
 * have them. With a {@code +} before them the line goes on with the one before, whose text has them
 * already.
 *
 * <p>In a mini cluster, prints are written to a stream as well, each line as a whole. The worker then
 * marks the lines of its log, because a print may start with the name of a level.
 */
final class WorkerLog implements Runnable {
  private static final Logger LOG = LoggerFactory.getLogger("org.flinkskills.worker");
  private static final int KEPT_LINES = 50;

  /** In bytes. */
  private static final int LONGEST_LINE = 8192;
  private static final int LONGEST_PRINT = 1 << 20;

  /** Has a worker mark the lines of its log. */
  static final String MARK_VARIABLE = "FLINK_SKILLS_MARK_LOG";

  private static final char MARK = '\u001e';

  private static final long LONGEST_PAUSE_MS = 50;

  /** The longest time that the log is read after the end of the process. */
  private static final long LAST_READ_MS = 500;

  private static final Pattern FIELDS =
      Pattern.compile("(\\+?)\\{((?:[a-z]+=[^\\s{}=]+ ?)+)\\} (.*)", Pattern.DOTALL);

  private final String name;
  private final JobID jobId;
  private final InputStream stream;
  private final Exit exit;
  private final PrintStream prints;
  private final Deque<String> tail = new ArrayDeque<>();
  private final byte[] buffer = new byte[8192];
  private final ByteArrayOutputStream line = new ByteArrayOutputStream();

  /** The end of the worker's process. */
  interface Exit {
    /** Waits for it; false when the process still runs after that time. */
    boolean await(long millis) throws InterruptedException;
  }

  /**
   * @param prints receives what is not the worker's log; may be null
   */
  WorkerLog(String name, JobID jobId, InputStream stream, Exit exit, PrintStream prints) {
    this.name = name;
    this.jobId = jobId;
    this.stream = stream;
    this.exit = exit;
    this.prints = prints;
  }

  /**
   * Reads until the process has ended and the pipe is empty. It never blocks in a read, because
   * another process may keep the pipe open.
   */
  @Override
  public void run() {
    try (MdcUtils.MdcCloseable job = MdcUtils.withContext(MdcUtils.asContextData(jobId));
        InputStream open = stream) {
      long pause = 0;
      while (!exit.await(pause)) {
        pause = readAvailable(open) ? 0 : Math.min(LONGEST_PAUSE_MS, 2 * pause + 1);
      }
      long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(LAST_READ_MS);
      while (readAvailable(open) && System.nanoTime() < deadline) {
        LOG.trace("{}: read output from before the exit.", name);
      }
      if (line.size() > 0) {
        forwardLine();
      }
    } catch (IOException e) {
      LOG.debug("{}: reading the log failed.", name, e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** The last lines, oldest first. */
  List<String> tail() {
    synchronized (tail) {
      return List.copyOf(tail);
    }
  }

  private void printed(String line) {
    if (prints != null) {
      // The line and its end together, so that lines of several workers do not mix.
      byte[] bytes = (line + "\n").getBytes(StandardCharsets.UTF_8);
      synchronized (prints) {
        prints.write(bytes, 0, bytes.length);
        prints.flush();
      }
    }
    forward(line);
  }

  private void forward(String whole) {
    String line = whole.length() > LONGEST_LINE ? whole.substring(0, LONGEST_LINE) : whole;
    Level level = Level.INFO;
    String text = line;
    for (Level candidate : List.of(Level.ERROR, Level.WARN, Level.INFO, Level.DEBUG)) {
      if (line.startsWith(candidate + " ")) {
        level = candidate;
        text = line.substring(candidate.toString().length() + 1);
        break;
      }
    }
    Map<String, String> fields = new LinkedHashMap<>();
    Matcher found = FIELDS.matcher(text);
    if (text != line && found.matches()) {
      for (String field : found.group(2).trim().split(" ")) {
        int equals = field.indexOf('=');
        fields.put(field.substring(0, equals), field.substring(equals + 1));
      }
      boolean goesOn = !found.group(1).isEmpty();
      text = goesOn ? found.group(3) : found.group(3) + " [" + found.group(2).trim() + "]";
    }
    synchronized (tail) {
      if (tail.size() == KEPT_LINES) {
        tail.removeFirst();
      }
      tail.addLast(text);
    }
    fields.forEach(MDC::put);
    try {
      log(level, text);
    } finally {
      fields.keySet().forEach(MDC::remove);
    }
  }

  private void log(Level level, String text) {
    switch (level) {
      case ERROR -> LOG.error("{}: {}", name, text);
      case WARN -> LOG.warn("{}: {}", name, text);
      case DEBUG -> LOG.debug("{}: {}", name, text);
      default -> LOG.info("{}: {}", name, text);
    }
  }

  /** Forwards the lines that can be read without blocking; false when there is nothing. */
  private boolean readAvailable(InputStream open) throws IOException {
    int available = open.available();
    int count = available > 0 ? open.read(buffer, 0, Math.min(available, buffer.length)) : 0;
    for (int i = 0; i < count; i++) {
      if (buffer[i] == '\n') {
        forwardLine();
      } else if (line.size() < (prints == null ? LONGEST_LINE : LONGEST_PRINT) && buffer[i] != '\r') {
        // An endless line cannot fill the memory.
        line.write(buffer[i]);
      }
    }
    return count > 0;
  }

  private void forwardLine() {
    String text = line.toString(StandardCharsets.UTF_8);
    line.reset();
    int mark = text.indexOf(MARK);
    if (mark != 0) {
      // A print without an end may precede the line of the log.
      printed(mark < 0 ? text : text.substring(0, mark));
    }
    if (mark >= 0) {
      forward(text.substring(mark + 1));
    }
  }
}
