package org.flinkskills.bridge.processes;

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
 * Reader of a worker's log lines. It writes them to the TaskManager's log, and stores the last ones
 * for error messages. A line that starts with {@code ERROR}, {@code WARN}, {@code INFO} or {@code
 * DEBUG} and a space has that level. Any other line, such as a library's print, has level INFO.
 *
 * <p>Fields may follow the level: <code>{agent=triage key=2f1a… turn=3} </code>. The reader adds
 * them to SLF4J's MDC, with Flink's own job id, and to the end of the text, so that layouts with
 * and without MDC have them. A {@code +} before the fields means that the line continues the
 * previous one, whose text has them already.
 *
 * <p>In a MiniCluster, prints are also written to a stream, each line as a whole. The worker then
 * marks the lines of its log, because a print may start with the name of a level.
 */
public final class WorkerLog implements Runnable {
  private static final Logger LOG = LoggerFactory.getLogger("org.flinkskills.worker");
  private static final int MAX_TAIL_LINES = 50;

  /** The maximum length of a line in bytes. */
  private static final int MAX_LINE_BYTES = 8192;

  private static final int MAX_PRINT_BYTES = 1 << 20;

  /** The environment variable with which a worker marks the lines of its log. */
  static final String MARK_VARIABLE = "FLINK_SKILLS_MARK_LOG";

  private static final char MARKER = '\u001e';

  private static final long MAX_PAUSE_MS = 50;

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
  public interface Exit {
    /** Wait for the exit. Return false if the process still runs after that time. */
    boolean await(long millis) throws InterruptedException;
  }

  /**
   * @param prints receives the lines that are not the worker's log; may be null
   */
  public WorkerLog(String name, JobID jobId, InputStream stream, Exit exit, PrintStream prints) {
    this.name = name;
    this.jobId = jobId;
    this.stream = stream;
    this.exit = exit;
    this.prints = prints;
  }

  /**
   * Read until the process has exited and the pipe is empty. No read blocks, because another
   * process may keep the pipe open.
   */
  @Override
  public void run() {
    try (MdcUtils.MdcCloseable job = MdcUtils.withContext(MdcUtils.asContextData(jobId));
        InputStream open = stream) {
      long pause = 0;
      while (!exit.await(pause)) {
        pause = readAvailable(open) ? 0 : Math.min(MAX_PAUSE_MS, 2 * pause + 1);
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

  /** Return the last lines, oldest first. */
  public List<String> tail() {
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
    String line = whole.length() > MAX_LINE_BYTES ? whole.substring(0, MAX_LINE_BYTES) : whole;
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
      boolean continues = !found.group(1).isEmpty();
      text = continues ? found.group(3) : found.group(3) + " [" + found.group(2).trim() + "]";
    }
    synchronized (tail) {
      if (tail.size() == MAX_TAIL_LINES) {
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

  /**
   * Write the lines that can be read without blocking to the log. Return false if there are none.
   */
  private boolean readAvailable(InputStream open) throws IOException {
    int available = open.available();
    int count = available > 0 ? open.read(buffer, 0, Math.min(available, buffer.length)) : 0;
    for (int i = 0; i < count; i++) {
      if (buffer[i] == '\n') {
        forwardLine();
      } else if (line.size() < (prints == null ? MAX_LINE_BYTES : MAX_PRINT_BYTES)
          && buffer[i] != '\r') {
        // An endless line cannot fill the memory.
        line.write(buffer[i]);
      }
    }
    return count > 0;
  }

  private void forwardLine() {
    String text = line.toString(StandardCharsets.UTF_8);
    line.reset();
    int marker = text.indexOf(MARKER);
    if (marker != 0) {
      // A print without an end may precede the line of the log.
      printed(marker < 0 ? text : text.substring(0, marker));
    }
    if (marker >= 0) {
      forward(text.substring(marker + 1));
    }
  }
}
