package org.flinkskills.bridge;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Uses between the packages of the bridge, in its sources. Links of Javadoc count as well. */
class PackagesTest {
  private static final Path SOURCES = Path.of("src/main/java/org/flinkskills/bridge");
  private static final String ROOT = "the root";

  /** The packages. Each one uses only those before it. */
  private static final List<String> ORDER =
      List.of(
          ROOT,
          "frames",
          "metrics",
          "outputs",
          "plan",
          "table",
          "processes",
          "pool",
          "waits",
          "turns",
          "operator",
          "streams");

  private static final Pattern USE = Pattern.compile("org\\.flinkskills\\.bridge\\.(\\w+)");
  private static final Pattern USERS = Pattern.compile("Used by:([^.]*)\\.");
  private static final Pattern NAME = Pattern.compile("\\{@code ([a-z]+)}");

  /** The packages that use each package. */
  private static final Map<String, TreeSet<String>> users = new TreeMap<>();

  @BeforeAll
  static void readSources() throws IOException {
    List<Path> files;
    try (Stream<Path> walk = Files.walk(SOURCES)) {
      files = walk.filter(file -> file.toString().endsWith(".java")).toList();
    }
    ORDER.forEach(name -> users.put(name, new TreeSet<>()));
    for (Path file : files) {
      String user = nameOf(SOURCES.relativize(file.getParent()).toString());
      Matcher use = USE.matcher(Files.readString(file));
      while (use.find()) {
        String used = nameOf(Character.isUpperCase(use.group(1).charAt(0)) ? "" : use.group(1));
        if (!used.equals(user)) {
          users.computeIfAbsent(used, name -> new TreeSet<>()).add(user);
        }
      }
    }
  }

  private static String nameOf(String folder) {
    return folder.isEmpty() ? ROOT : folder;
  }

  @Test
  void aPackageUsesOnlyPackagesBelow() {
    assertEquals(new TreeSet<>(ORDER), users.keySet());
    users.forEach(
        (used, all) ->
            all.forEach(
                user ->
                    assertTrue(
                        ORDER.indexOf(used) < ORDER.indexOf(user),
                        user + " must not use " + used)));
  }

  @Test
  void aPackageNamesItsUsers() throws IOException {
    for (String name : ORDER) {
      Path info = SOURCES.resolve(name.equals(ROOT) ? "" : name).resolve("package-info.java");
      Matcher stated = USERS.matcher(Files.readString(info).replaceAll("\\s+\\* ", " "));
      assertTrue(stated.find(), info + " has no line 'Used by: …'");
      TreeSet<String> named = new TreeSet<>();
      NAME.matcher(stated.group(1)).results().forEach(found -> named.add(found.group(1)));
      assertEquals(users.get(name), named, info.toString());
    }
  }
}
