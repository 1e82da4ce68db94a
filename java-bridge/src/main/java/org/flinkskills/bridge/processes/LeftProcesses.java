package org.flinkskills.bridge.processes;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Processes that outlive the worker that started them, such as a daemon in its own session.
 *
 * <p>A process belongs to a worker if it has the worker's marker in its environment, is in the
 * worker's session, or can write to a pipe of the worker. The marker contains the random name of
 * the pool's scratch directory, and the identity of the TaskManager, which identifies the processes
 * of a killed TaskManager. A process without all three, or that the TaskManager's user cannot
 * examine, is not found. Without {@code /proc} (on macOS), no process is found.
 */
public final class LeftProcesses {
  private static final Logger LOG = LoggerFactory.getLogger(LeftProcesses.class);

  /** The environment variable with the marker, in a worker and all of its descendants. */
  public static final String VARIABLE = "FLINK_SKILLS_WORKER_MARK";

  /** The maximum duration of {@link #end}. */
  public static final long MAX_MS = 2000;

  private static final Path PROC = Path.of("/proc");
  private static final long GRACE_MS = 500;
  private static final long POLL_MS = 5;

  private static final int START_TIME = 19;

  /** The end of a marker is the identity of the TaskManager. */
  private static final Pattern MARKER = Pattern.compile(".*@((\\d{1,18})-\\d+)");

  private final Rule rule;

  /** Predicate of a process, from its directory in {@code /proc}. */
  private interface Rule {
    boolean matches(Path directory, String[] stat) throws IOException;
  }

  private LeftProcesses(Rule rule) {
    this.rule = rule;
  }

  /** Return the marker of a worker of this TaskManager, for a name that no other worker has. */
  static String marker(String name) {
    return name + "@" + identity(ProcessHandle.current().pid());
  }

  /** Return the processes of the worker that was just started with this marker. */
  static LeftProcesses of(Process worker, String marker) {
    Set<String> pipes = new LinkedHashSet<>();
    for (int descriptor : List.of(1, 2)) {
      Path link = PROC.resolve(worker.pid() + "/fd/" + descriptor);
      try {
        String target = Files.readSymbolicLink(link).toString();
        if (target.startsWith("pipe:")) {
          pipes.add(target);
        }
      } catch (IOException | UnsupportedOperationException e) {
        LOG.debug("The pipe {} of an agent worker cannot be determined.", link, e);
      }
    }
    String session = Long.toString(worker.pid());
    return new LeftProcesses(
        (directory, stat) ->
            // The worker's id may belong to another process by now, which leads another session.
            stat[3].equals(session) && !Files.exists(PROC.resolve(session))
                || marker.equals(markerOf(directory))
                || writesTo(pipes, directory));
  }

  /**
   * Return the processes of workers whose TaskManager was killed. Process ids mean the same only in
   * one namespace, so processes of other containers are not among them.
   */
  static LeftProcesses ofEndedTaskManagers() {
    return new LeftProcesses(
        (directory, stat) -> {
          Matcher marker = MARKER.matcher(markerOf(directory));
          return marker.matches()
              && !marker.group(1).equals(identity(Long.parseLong(marker.group(2))))
              && namespaceOf(directory).equals(namespaceOf(PROC.resolve("self")));
        });
  }

  /** Return the id with the start time, which identify a process, or nothing if it has ended. */
  private static String identity(long pid) {
    try {
      return pid + "-" + stat(PROC.resolve(Long.toString(pid)))[START_TIME];
    } catch (IOException e) {
      return "";
    }
  }

  private static String namespaceOf(Path directory) throws IOException {
    return Files.readSymbolicLink(directory.resolve("ns/pid")).toString();
  }

  /**
   * Terminate the processes by SIGTERM and then by SIGKILL, and log their programs. The worker has
   * exited.
   */
  void end(String name) throws InterruptedException {
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(MAX_MS - GRACE_MS);
    Set<String> programs = new LinkedHashSet<>();
    List<ProcessHandle> remaining = find();
    for (boolean kill = false; !remaining.isEmpty() && System.nanoTime() < deadline; kill = true) {
      for (ProcessHandle process : remaining) {
        programs.add(programOf(process));
        boolean requested = kill ? process.destroyForcibly() : process.destroy();
        LOG.debug("{}: process {} was signaled: {}.", name, process.pid(), requested);
      }
      awaitEnd(remaining);
      remaining = find();
    }
    if (!programs.isEmpty()) {
      LOG.warn(
          "{}: terminated processes that its code left running: {}",
          name,
          String.join(", ", programs));
    }
    if (!remaining.isEmpty()) {
      LOG.error(
          "{}: failed to terminate processes that its code left running: {}",
          name,
          remaining.stream().map(LeftProcesses::programOf).toList());
    }
  }

  /** Return the program without its arguments, which may contain secrets. */
  private static String programOf(ProcessHandle process) {
    return process.info().command().orElse("a program") + " (" + process.pid() + ")";
  }

  private static void awaitEnd(List<ProcessHandle> processes) throws InterruptedException {
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(GRACE_MS);
    while (System.nanoTime() < deadline && processes.stream().anyMatch(LeftProcesses::runs)) {
      Thread.sleep(POLL_MS);
    }
  }

  private static boolean runs(ProcessHandle process) {
    try {
      return process.isAlive() && !isZombie(stat(PROC.resolve(Long.toString(process.pid()))));
    } catch (IOException e) {
      return false; // it has ended
    }
  }

  private List<ProcessHandle> find() {
    List<ProcessHandle> found = new ArrayList<>();
    if (!Files.isDirectory(PROC)) {
      return found;
    }
    try (DirectoryStream<Path> directories = Files.newDirectoryStream(PROC, "[0-9]*")) {
      for (Path directory : directories) {
        long pid = Long.parseLong(directory.getFileName().toString());
        if (pid != ProcessHandle.current().pid()) {
          // A handle contains the start time of its process, so it never signals a later process
          // with
          // the same id. It must exist before the process is examined.
          ProcessHandle.of(pid).filter(process -> belongs(directory)).ifPresent(found::add);
        }
      }
    } catch (IOException | DirectoryIteratorException e) {
      LOG.warn("Listing the processes of this machine failed; none is terminated.", e);
    }
    return found;
  }

  private boolean belongs(Path directory) {
    try {
      String[] stat = stat(directory);
      return !isZombie(stat) && rule.matches(directory, stat);
    } catch (IOException e) {
      return false; // it has ended, or belongs to another user
    }
  }

  /** The fields behind the name: state, parent, group, session and more. */
  private static String[] stat(Path directory) throws IOException {
    String text = Files.readString(directory.resolve("stat"), StandardCharsets.ISO_8859_1);
    return text.substring(text.lastIndexOf(')') + 2).split(" ");
  }

  private static boolean isZombie(String[] stat) {
    return stat[0].equals("Z") || stat[0].equals("X");
  }

  /** Return the marker in the environment, or an empty string. */
  private static String markerOf(Path directory) throws IOException {
    String environment =
        Files.readString(directory.resolve("environ"), StandardCharsets.ISO_8859_1);
    for (String variable : environment.split("\0")) {
      if (variable.startsWith(VARIABLE + "=")) {
        return variable.substring(VARIABLE.length() + 1);
      }
    }
    return "";
  }

  private static boolean writesTo(Set<String> pipes, Path directory) throws IOException {
    if (pipes.isEmpty()) {
      return false;
    }
    try (DirectoryStream<Path> descriptors = Files.newDirectoryStream(directory.resolve("fd"))) {
      for (Path descriptor : descriptors) {
        if (pipes.contains(Files.readSymbolicLink(descriptor).toString())
            && isWritable(directory.resolve("fdinfo").resolve(descriptor.getFileName()))) {
          return true;
        }
      }
    } catch (DirectoryIteratorException e) {
      throw e.getCause();
    }
    return false;
  }

  /** A process that the TaskManager is about to start may have its reading ends for a moment. */
  private static boolean isWritable(Path descriptor) throws IOException {
    for (String line : Files.readAllLines(descriptor, StandardCharsets.ISO_8859_1)) {
      if (line.startsWith("flags:")) {
        return (Long.parseLong(line.substring("flags:".length()).strip(), 8) & 3) != 0;
      }
    }
    return false;
  }
}
