package org.flinkskills.bridge.processes;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Instant;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.flink.api.common.JobID;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Directory for all files of a pool and its workers, such as workspaces and copies of resources.
 *
 * <p>A killed TaskManager cannot remove the directory. So each directory has a lock file, which the
 * operating system unlocks when the process exits. The creation of a directory removes the
 * directories whose lock files are not locked. It ignores the lock files of this process, because
 * an open and close of such a file would unlock it.
 */
public final class ScratchDirectory {
  private static final Logger LOG = LoggerFactory.getLogger(ScratchDirectory.class);
  private static final String PREFIX = "flink-skills-";
  private static final String LOCK_SUFFIX = ".lock";
  private static final Pattern LOCK_FILE =
      Pattern.compile("flink-skills-[0-9a-f]{32}-\\d+\\.\\d+-\\d+\\.lock");

  private final Path path;
  private final Path lockFile;
  private final FileChannel lock;

  private ScratchDirectory(Path path, Path lockFile, FileChannel lock) {
    this.path = path;
    this.lockFile = lockFile;
    this.lock = lock;
  }

  /** Create {@code <tmp>/flink-skills-<job>-<random>}, readable by its owner only. */
  public static ScratchDirectory create(String[] tmpDirectories, JobID jobId) throws IOException {
    Path parent =
        Path.of(
                tmpDirectories.length > 0
                    ? tmpDirectories[0]
                    : System.getProperty("java.io.tmpdir"))
            .toAbsolutePath();
    Files.createDirectories(parent);
    removeAbandoned(parent);
    Path path = Files.createTempDirectory(parent, PREFIX + jobId + "-");
    Path lockFile = parent.resolve(path.getFileName() + "." + thisProcess() + LOCK_SUFFIX);
    FileChannel lock =
        FileChannel.open(lockFile, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE);
    if (lock.tryLock() == null) {
      LOG.debug("Another process mistook the new lock file {} for an abandoned one.", lockFile);
    }
    return new ScratchDirectory(path, lockFile, lock);
  }

  public Path path() {
    return path;
  }

  /** Delete the directory, see {@link #delete(Path)}, and release its lock. */
  public void delete() {
    delete(path);
    try {
      Files.deleteIfExists(lockFile);
      lock.close();
    } catch (IOException e) {
      LOG.warn("The lock file {} could not be deleted.", lockFile, e);
    }
  }

  /**
   * Return an id that distinguishes this process even from one with the same number in another
   * container.
   */
  private static String thisProcess() {
    ProcessHandle process = ProcessHandle.current();
    long started = process.info().startInstant().map(Instant::toEpochMilli).orElse(0L);
    return process.pid() + "-" + started;
  }

  private static void removeAbandoned(Path parent) throws IOException {
    String own = "." + thisProcess() + LOCK_SUFFIX;
    List<Path> lockFiles;
    try (Stream<Path> files = Files.list(parent)) {
      lockFiles =
          files
              .filter(file -> LOCK_FILE.matcher(file.getFileName().toString()).matches())
              .filter(file -> !file.getFileName().toString().endsWith(own))
              .toList();
    }
    lockFiles.forEach(ScratchDirectory::removeIfAbandoned);
  }

  private static void removeIfAbandoned(Path lockFile) {
    String name = lockFile.getFileName().toString();
    Path directory = lockFile.resolveSibling(name.substring(0, name.indexOf('.')));
    if (!isOfItsOwner(lockFile, directory)) {
      LOG.debug("{} is not removed: it is not a lock file of the folder's owner.", lockFile);
      return;
    }
    try (FileChannel channel = FileChannel.open(lockFile, StandardOpenOption.WRITE)) {
      if (channel.tryLock() != null) {
        LOG.info("Removing {} of a process that was killed.", directory);
        if (Files.exists(directory)) {
          delete(directory);
        }
        Files.deleteIfExists(lockFile);
      }
    } catch (IOException | OverlappingFileLockException e) {
      // The file belongs to another user, or another process removes the directory.
      LOG.debug("{} is not removed: its lock file cannot be opened or locked.", directory, e);
    }
  }

  /**
   * Return false if another user may have put the lock file there, to have a directory in use
   * removed, or to block a process that opens it: in {@code /tmp} all users can create one.
   */
  private static boolean isOfItsOwner(Path lockFile, Path directory) {
    try {
      return Files.isRegularFile(lockFile, LinkOption.NOFOLLOW_LINKS)
          && (!Files.exists(directory, LinkOption.NOFOLLOW_LINKS)
              || Files.getOwner(lockFile, LinkOption.NOFOLLOW_LINKS)
                  .equals(Files.getOwner(directory, LinkOption.NOFOLLOW_LINKS)));
    } catch (IOException e) {
      return false;
    }
  }

  /**
   * Delete a directory with its content, even read-only files and directories. Symbolic links are
   * deleted, never followed. A failed deletion is logged and not thrown, because the job has ended.
   */
  public static void delete(Path directory) {
    try {
      Files.walkFileTree(directory, new Deleter());
    } catch (IOException e) {
      LOG.warn("The folder {} could not be deleted completely.", directory, e);
    }
  }

  private static final class Deleter extends SimpleFileVisitor<Path> {
    @Override
    public FileVisitResult preVisitDirectory(Path directory, BasicFileAttributes attributes) {
      makeWritable(directory);
      return FileVisitResult.CONTINUE;
    }

    @Override
    public FileVisitResult visitFile(Path file, BasicFileAttributes attributes) throws IOException {
      Files.deleteIfExists(file);
      return FileVisitResult.CONTINUE;
    }

    @Override
    public FileVisitResult visitFileFailed(Path file, IOException failure) throws IOException {
      // The file may be gone.
      Files.deleteIfExists(file);
      return FileVisitResult.CONTINUE;
    }

    @Override
    public FileVisitResult postVisitDirectory(Path directory, IOException failure)
        throws IOException {
      if (failure != null) {
        throw failure;
      }
      Files.deleteIfExists(directory);
      return FileVisitResult.CONTINUE;
    }

    private static void makeWritable(Path directory) {
      try {
        Files.setPosixFilePermissions(directory, PosixFilePermissions.fromString("rwx------"));
      } catch (IOException | UnsupportedOperationException e) {
        LOG.debug("The permissions of {} could not be changed.", directory, e);
      }
    }
  }
}
