package org.flinkskills.bridge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.OutputStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.apache.flink.util.FlinkUserCodeClassLoaders;
import org.apache.flink.util.MutableURLClassLoader;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class JobResourcesTest {
  @TempDir Path dir;

  /** Writes a jar; an entry that ends in "/" is a folder, any other holds its own name. */
  private Path jar(String name, String... entries) throws IOException {
    Path jar = dir.resolve(name);
    try (OutputStream file = Files.newOutputStream(jar);
        ZipOutputStream zip = new ZipOutputStream(file)) {
      for (String entry : entries) {
        zip.putNextEntry(new ZipEntry(entry));
        if (!entry.endsWith("/")) {
          zip.write((name + ":" + entry).getBytes(StandardCharsets.UTF_8));
        }
        zip.closeEntry();
      }
    }
    return jar;
  }

  /** The loader that a task has: Flink's wrapper around one that is child-first. */
  private MutableURLClassLoader loader(Path... jars) throws IOException {
    URL[] urls = new URL[jars.length];
    for (int i = 0; i < jars.length; i++) {
      urls[i] = jars[i].toUri().toURL();
    }
    return FlinkUserCodeClassLoaders.childFirst(
        urls, getClass().getClassLoader(), new String[] {"java."}, error -> {}, true);
  }

  private List<String> materialise(String name, ClassLoader loader) throws Exception {
    return JobResources.materialise(name, 4, loader, dir.resolve("out"));
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void aFolderIsFoundWithAndWithoutFolderEntries(boolean folderEntries) throws Exception {
    // Blobs on a TaskManager have no .jar in their names.
    Path jar =
        folderEntries
            ? jar("blob_p-1", "skills/", "skills/log/", "skills/log/SKILL.md", "skillsX/no")
            : jar("blob_p-1", "skills/log/SKILL.md", "skillsX/no");
    try (MutableURLClassLoader loader = loader(jar)) {
      List<String> paths = materialise("skills", loader);
      assertEquals(List.of(dir.resolve("out/4-0/skills").toString()), paths);
      Path skill = Path.of(paths.get(0), "log", "SKILL.md");
      assertEquals("blob_p-1:skills/log/SKILL.md", Files.readString(skill));
      assertFalse(Files.exists(Path.of(paths.get(0), "no")));
    }
  }

  @Test
  void everyJarWithTheFolderCountsInClassPathOrder() throws Exception {
    Path second = jar("b.jar", "skills/two/SKILL.md");
    Path none = jar("c.jar", "other/x");
    Path first = jar("a.jar", "skills/", "skills/one/SKILL.md");
    try (MutableURLClassLoader loader = loader(second, none, first)) {
      List<String> paths = materialise("skills/", loader);
      assertEquals(2, paths.size());
      assertTrue(Files.exists(Path.of(paths.get(0), "two/SKILL.md")));
      assertTrue(Files.exists(Path.of(paths.get(1), "one/SKILL.md")));
    }
  }

  @Test
  void aZipStaysAZip() throws Exception {
    Path jar = jar("a.jar", "conf/skills.zip");
    try (MutableURLClassLoader loader = loader(jar)) {
      List<String> paths = materialise("conf/skills.zip", loader);
      assertEquals(List.of(dir.resolve("out/4-0/skills.zip").toString()), paths);
      assertEquals("a.jar:conf/skills.zip", Files.readString(Path.of(paths.get(0))));
    }
  }

  @Test
  void aFolderOnTheClassPathWorksToo() throws Exception {
    Path classes = Files.createDirectories(dir.resolve("classes"));
    Files.createDirectories(classes.resolve("skills/log"));
    Files.writeString(classes.resolve("skills/log/SKILL.md"), "x");
    try (URLClassLoader loader =
        new URLClassLoader(new URL[] {classes.toUri().toURL()}, getClass().getClassLoader())) {
      List<String> paths = materialise("skills", loader);
      assertEquals("x", Files.readString(Path.of(paths.get(0), "log/SKILL.md")));
    }
  }

  @Test
  void aResourceThatIsNowhereIsSaidWithTheJarsAndTheMend() throws Exception {
    Path jar = jar("a.jar", "skill/SKILL.md");
    try (MutableURLClassLoader loader = loader(jar)) {
      AgentOpenException failure =
          assertThrows(AgentOpenException.class, () -> materialise("skills", loader));
      assertTrue(failure.getMessage().contains("'skills'"), failure.getMessage());
      assertTrue(failure.getMessage().contains(jar.toRealPath().toString()), failure.getMessage());
      assertTrue(failure.getMessage().contains("pipeline.jars"), failure.getMessage());
    }
  }

  @Test
  void anEntryThatLeavesItsFolderIsRefused() throws Exception {
    Path jar = jar("a.jar", "skills/../../../../evil");
    try (MutableURLClassLoader loader = loader(jar)) {
      IOException failure = assertThrows(IOException.class, () -> materialise("skills", loader));
      assertTrue(failure.getMessage().contains("evil"), failure.getMessage());
      assertFalse(Files.exists(dir.resolve("evil")));
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"/skills", "../skills", "a/../../b", "", "/"})
  void aNameThatIsNotInsideAJarIsRefused(String name) throws Exception {
    try (MutableURLClassLoader loader = loader()) {
      assertThrows(AgentOpenException.class, () -> materialise(name, loader));
    }
  }
}
