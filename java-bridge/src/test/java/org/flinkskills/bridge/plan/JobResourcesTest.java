package org.flinkskills.bridge.plan;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
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
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Enumeration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipInputStream;
import java.util.zip.ZipOutputStream;
import org.apache.flink.util.FlinkUserCodeClassLoaders;
import org.apache.flink.util.MutableURLClassLoader;
import org.flinkskills.bridge.AgentOpenException;
import org.flinkskills.bridge.AgentRejectedException;
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

  private List<String> copy(String name, ClassLoader loader) throws Exception {
    return copy(name, loader, JobResources.Limits.defaults());
  }

  private List<String> copy(String name, ClassLoader loader, JobResources.Limits limits)
      throws Exception {
    return JobResources.copy(name, 4, loader, dir.resolve("out"), limits);
  }

  /** The files of a copy, by name, in the order in which they are in it. */
  private static Map<String, String> files(String copy) throws IOException {
    Map<String, String> found = new LinkedHashMap<>();
    try (ZipInputStream zip = new ZipInputStream(Files.newInputStream(Path.of(copy)))) {
      for (ZipEntry entry; (entry = zip.getNextEntry()) != null; ) {
        found.put(entry.getName(), new String(zip.readAllBytes(), StandardCharsets.UTF_8));
      }
    }
    return found;
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
      List<String> paths = copy("skills", loader);
      assertEquals(List.of(dir.resolve("out/4-0/skills.zip").toString()), paths);
      assertEquals(
          Map.of("skills/log/SKILL.md", "blob_p-1:skills/log/SKILL.md"), files(paths.get(0)));
    }
  }

  @Test
  void theSameContentIsTheSameFileWhateverTheOrderInTheJar() throws Exception {
    List<byte[]> copies = new ArrayList<>();
    for (String[] entries :
        List.of(
            new String[] {"skills/", "skills/a/", "skills/a/SKILL.md", "skills/a/z", "skills/b"},
            new String[] {"other", "skills/b", "skills/a/z", "skills/a/SKILL.md"})) {
      try (MutableURLClassLoader loader = loader(jar("a.jar", entries))) {
        copies.add(Files.readAllBytes(Path.of(copy("skills", loader).get(0))));
      }
    }
    assertArrayEquals(copies.get(0), copies.get(1));
  }

  @Test
  void everyJarWithTheFolderCountsInClassPathOrder() throws Exception {
    Path second = jar("b.jar", "skills/two/SKILL.md");
    Path none = jar("c.jar", "other/x");
    Path first = jar("a.jar", "skills/", "skills/one/SKILL.md");
    try (MutableURLClassLoader loader = loader(second, none, first)) {
      List<String> paths = copy("skills/", loader);
      assertEquals(2, paths.size());
      assertEquals(Set.of("skills/two/SKILL.md"), files(paths.get(0)).keySet());
      assertEquals(Set.of("skills/one/SKILL.md"), files(paths.get(1)).keySet());
    }
  }

  @Test
  void aZipStaysAZip() throws Exception {
    Path jar = jar("a.jar", "conf/skills.zip");
    try (MutableURLClassLoader loader = loader(jar)) {
      List<String> paths = copy("conf/skills.zip", loader);
      assertEquals(List.of(dir.resolve("out/4-0/skills.zip").toString()), paths);
      assertEquals("a.jar:conf/skills.zip", Files.readString(Path.of(paths.get(0))));
    }
  }

  @Test
  void aJarOfUsrlibIsFoundFromTheWorkingDirectory() throws Exception {
    Path jar = jar("with blank.jar", "skills/log/SKILL.md");
    String relative = Path.of("").toAbsolutePath().relativize(jar).toString();
    URL url = new URL("file:" + relative.replace(" ", "%20"));
    ClassLoader parent = getClass().getClassLoader();
    try (URLClassLoader loader = new URLClassLoader(new URL[] {url}, parent)) {
      String copy = copy("skills", loader).get(0);
      assertEquals(Set.of("skills/log/SKILL.md"), files(copy).keySet());
    }
  }

  @Test
  void aFolderOnTheClassPathWorksToo() throws Exception {
    Path classes = Files.createDirectories(dir.resolve("classes"));
    Files.createDirectories(classes.resolve("skills/log"));
    Files.writeString(classes.resolve("skills/log/SKILL.md"), "x");
    try (URLClassLoader loader =
        new URLClassLoader(new URL[] {classes.toUri().toURL()}, getClass().getClassLoader())) {
      List<String> paths = copy("skills", loader);
      assertEquals(Map.of("skills/log/SKILL.md", "x"), files(paths.get(0)));
    }
  }

  @Test
  void aFolderThatNoClassPathListsIsNotOfTheJob() throws Exception {
    // As the working directory of a process, which an empty entry of its class path stands for.
    Path folder = Files.createDirectories(dir.resolve("cwd/skills/log"));
    Files.writeString(folder.resolve("SKILL.md"), "x");
    URL found = folder.getParent().toUri().toURL();
    ClassLoader loader =
        new ClassLoader(getClass().getClassLoader()) {
          @Override
          protected Enumeration<URL> findResources(String name) {
            return Collections.enumeration(name.equals("skills") ? List.of(found) : List.of());
          }
        };
    assertTrue(loader.getResources("skills").hasMoreElements());
    assertThrows(AgentRejectedException.class, () -> copy("skills", loader));
  }

  @Test
  void aResourceThatIsNowhereIsSaidWithTheJarsAndTheMend() throws Exception {
    Path jar = jar("a.jar", "skill/SKILL.md");
    try (MutableURLClassLoader loader = loader(jar)) {
      AgentOpenException failure =
          assertThrows(AgentOpenException.class, () -> copy("skills", loader));
      assertTrue(failure.getMessage().contains("'skills'"), failure.getMessage());
      assertTrue(failure.getMessage().contains(jar.toRealPath().toString()), failure.getMessage());
      assertTrue(failure.getMessage().contains("pipeline.jars"), failure.getMessage());
    }
  }

  @Test
  void noFileIsWrittenUnderTheNameOfAnEntry() throws Exception {
    Path jar = jar("a.jar", "skills/../../../../evil", "skills/a/SKILL.md");
    try (MutableURLClassLoader loader = loader(jar)) {
      List<String> paths = copy("skills", loader);
      // The worker refuses the archive, as any with such an entry.
      assertTrue(files(paths.get(0)).containsKey("skills/../../../../evil"));
      try (Stream<Path> written = Files.walk(dir.resolve("out"))) {
        assertEquals(
            List.of(dir.resolve("out/4-0/skills.zip")),
            written.filter(Files::isRegularFile).toList());
      }
      assertFalse(Files.exists(dir.resolve("evil")));
    }
  }

  @Test
  void aJarThatPassesALimitIsRefusedWithTheOptionsName() throws Exception {
    Path jar = jar("a.jar", "skills/a/SKILL.md", "skills/a/b", "skills/a/c");
    try (MutableURLClassLoader loader = loader(jar)) {
      for (var expected :
          Map.of(
                  "skills.limits.entries", new JobResources.Limits(2, 1000, 1000),
                  "skills.limits.file", new JobResources.Limits(3, 10, 1000),
                  "skills.limits.total", new JobResources.Limits(3, 1000, 40))
              .entrySet()) {
        AgentRejectedException refused =
            assertThrows(
                AgentRejectedException.class, () -> copy("skills", loader, expected.getValue()));
        assertTrue(refused.getMessage().contains(expected.getKey()), refused.getMessage());
        assertTrue(refused.getMessage().contains(jar.toRealPath().toString()));
      }
      assertEquals(1, copy("skills", loader, new JobResources.Limits(3, 100, 300)).size());
    }
  }

  @Test
  void anEntryThatCannotBeReadRefusesTheJar() throws Exception {
    Path jar = jar("a.jar", "skills/a/SKILL.md");
    byte[] bytes = Files.readAllBytes(jar);
    // Behind the first local header and the name: the compressed bytes.
    int content = 30 + "skills/a/SKILL.md".length();
    Arrays.fill(bytes, content, content + 8, (byte) 0xFF);
    Files.write(jar, bytes);
    try (MutableURLClassLoader loader = loader(jar)) {
      AgentRejectedException refused =
          assertThrows(AgentRejectedException.class, () -> copy("skills", loader));
      assertTrue(refused.getMessage().contains("is damaged"), refused.getMessage());
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"/skills", "../skills", "a/../../b", "", "/"})
  void aNameThatIsNotInsideAJarIsRefused(String name) throws Exception {
    try (MutableURLClassLoader loader = loader()) {
      assertThrows(AgentOpenException.class, () -> copy(name, loader));
    }
  }
}
