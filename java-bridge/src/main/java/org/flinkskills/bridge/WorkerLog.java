package org.flinkskills.bridge;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import org.slf4j.event.Level;

/**
 * Forwards a worker's log lines to the TaskManager's log and keeps the last ones for error
 * messages. A line that starts with {@code ERROR}, {@code WARN}, {@code INFO} or {@code DEBUG} and
 * a space is logged at that level, any other one (a traceback, a library's print) at INFO.
 */
final class WorkerLog implements Runnable {
  private static final Logger LOG = LoggerFactory.getLogger("org.flinkskills.worker");
  private static final int KEPT_LINES = 50;
  private static final int LONGEST_LINE = 8192;

  private final String name;
  private final InputStream stream;
  private final Deque<String> tail = new ArrayDeque<>();

  WorkerLog(String name, InputStream stream) {
    this.name = name;
    this.stream = stream;
  }

  @Override
  public void run() {
    try (BufferedReader reader =
        new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8))) {
      String line;
      while ((line = readLine(reader)) != null) {
        forward(line);
      }
    } catch (IOException e) {
      LOG.debug("{}: the log stream ended with an error.", name, e);
    }
  }

  /** The last lines, oldest first. */
  List<String> tail() {
    synchronized (tail) {
      return List.copyOf(tail);
    }
  }

  private void forward(String line) {
    Level level = Level.INFO;
    String text = line;
    for (Level candidate : List.of(Level.ERROR, Level.WARN, Level.INFO, Level.DEBUG)) {
      if (line.startsWith(candidate + " ")) {
        level = candidate;
        text = line.substring(candidate.toString().length() + 1);
        break;
      }
    }
    synchronized (tail) {
      if (tail.size() == KEPT_LINES) {
        tail.removeFirst();
      }
      tail.addLast(text);
    }
    switch (level) {
      case ERROR -> LOG.error("{}: {}", name, text);
      case WARN -> LOG.warn("{}: {}", name, text);
      case DEBUG -> LOG.debug("{}: {}", name, text);
      default -> LOG.info("{}: {}", name, text);
    }
  }

  /** Like {@link BufferedReader#readLine()}, but an endless line cannot fill the memory. */
  private static String readLine(BufferedReader reader) throws IOException {
    StringBuilder line = new StringBuilder();
    int c;
    while ((c = reader.read()) >= 0) {
      if (c == '\n') {
        return line.toString();
      }
      if (line.length() < LONGEST_LINE && c != '\r') {
        line.append((char) c);
      }
    }
    return line.isEmpty() ? null : line.toString();
  }
}
