package org.flinkskills.bridge.processes;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class ScratchDirectoryTest {
  private static final String OTHER = "flink-skills-0123456789abcdef0123456789abcdef-17";

  @TempDir Path tmp;

  private ScratchDirectory create() throws IOException {
    return ScratchDirectory.create(new String[] {tmp.toString()}, new JobID());
  }

  /** The folder and lock file of another process. */
  private Path leaveBehind() throws IOException {
    Path folder = Files.createDirectories(tmp.resolve(OTHER).resolve("deep"));
    Files.writeString(folder.resolve("file"), "x");
    return Files.createFile(tmp.resolve(OTHER + ".4711-1700000000000.lock"));
  }

  @Test
  void onlyTheOwnerReadsIt() throws IOException {
    ScratchDirectory scratch = create();
    assertEquals(
        "rwx------", PosixFilePermissions.toString(Files.getPosixFilePermissions(scratch.path())));
    scratch.delete();
    try (var left = Files.list(tmp)) {
      assertEquals(0, left.count());
    }
  }

  @Test
  void whatAKilledProcessLeftIsRemoved() throws IOException {
    Path lock = leaveBehind();
    create().delete();
    assertFalse(Files.exists(lock));
    assertFalse(Files.exists(tmp.resolve(OTHER)));
  }

  @Test
  void whatAnotherProcessUsesStays() throws Exception {
    Path lock = leaveBehind();
    Process owner =
        new ProcessBuilder(
                "python3",
                "-c",
                "import fcntl, sys\nf = open(sys.argv[1], 'w')\nfcntl.lockf(f, fcntl.LOCK_EX)\n"
                    + "print('locked', flush=True)\nsys.stdin.read()",
                lock.toString())
            .start();
    try {
      assertEquals('l', owner.getInputStream().read());
      create().delete();
      assertTrue(Files.exists(tmp.resolve(OTHER).resolve("deep/file")));
      assertTrue(Files.exists(lock));
    } finally {
      owner.destroyForcibly();
      assertTrue(owner.waitFor(10, TimeUnit.SECONDS));
    }
    create().delete();
    assertFalse(Files.exists(tmp.resolve(OTHER)));
  }

  @Test
  void aPipeInPlaceOfALockFileBlocksNobody() throws Exception {
    Path folder = leaveBehind().resolveSibling(OTHER);
    Path pipe = tmp.resolve(OTHER + ".1-1.lock");
    assertEquals(0, new ProcessBuilder("mkfifo", pipe.toString()).start().waitFor());
    Files.delete(tmp.resolve(OTHER + ".4711-1700000000000.lock"));
    create().delete();
    assertTrue(Files.exists(folder.resolve("deep/file")));
  }

  @Test
  void aLockFileOfAnotherUserRemovesNothing() throws Exception {
    Path lock = leaveBehind();
    Process chown = new ProcessBuilder("chown", "65534", lock.toString()).start();
    Assumptions.assumeTrue(chown.waitFor() == 0, "needs root, to give a file to another user");
    create().delete();
    assertTrue(Files.exists(tmp.resolve(OTHER).resolve("deep/file")));
  }

  @Test
  void foldersOfThisProcessDoNotDisturbEachOther() throws IOException {
    ScratchDirectory one = create();
    ScratchDirectory two = create();
    assertTrue(Files.isDirectory(one.path()) && Files.isDirectory(two.path()));
    one.delete();
    assertTrue(Files.isDirectory(two.path()));
    two.delete();
  }
}
