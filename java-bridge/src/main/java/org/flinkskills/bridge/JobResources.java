package org.flinkskills.bridge;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.URISyntaxException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Enumeration;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.stream.Stream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipException;
import java.util.zip.ZipFile;

/**
 * Copies resources out of the job's jars: a folder ({@code skills}) or a file ({@code skills.zip}).
 *
 * <p>The entries of each jar are walked, because many jars have no entries for their folders, and
 * then the class loader does not find a folder. When several jars have the resource, each gives one
 * copy, in class path order.
 */
final class JobResources {
  private JobResources() {}

  /**
   * Copies the resource to {@code <target>/<number>-<i>/<last part of its name>}.
   *
   * @param number distinguishes the resources of a job
   * @return the paths of the copies, in class path order
   * @throws AgentOpenException when no jar has the resource
   */
  static List<String> materialise(String name, int number, ClassLoader classLoader, Path target)
      throws IOException, AgentOpenException {
    String wanted = normalise(name);
    Set<Path> classPath = classPath(wanted, classLoader);
    List<String> copies = new ArrayList<>();
    for (Path place : classPath) {
      Path copy =
          target
              .resolve(number + "-" + copies.size())
              .resolve(wanted.substring(wanted.lastIndexOf('/') + 1));
      boolean found =
          Files.isDirectory(place)
              ? copyFromFolder(place.resolve(wanted), copy)
              : copyFromJar(place, wanted, copy);
      if (found) {
        copies.add(copy.toString());
      }
    }
    if (copies.isEmpty()) {
      throw new AgentRejectedException(
          String.format(
              "The skill resource '%s' is in none of the job's jars. Searched: %s. Put it into a jar of"
                  + " the job (flink run -j or --jarfile, env.add_jars(...), pipeline.jars), at the top"
                  + " level of the jar.",
              name, describe(classPath)));
    }
    return copies;
  }

  private static String normalise(String name) throws AgentOpenException {
    String wanted = name;
    while (wanted.endsWith("/")) {
      wanted = wanted.substring(0, wanted.length() - 1);
    }
    boolean climbs = List.of(wanted.split("/")).contains("..");
    if (wanted.isEmpty() || wanted.startsWith("/") || wanted.contains("\\") || climbs) {
      throw new AgentRejectedException(
          "The skill resource '"
              + name
              + "' is not a path inside a jar; write it such as 'skills' or 'conf/skills.zip'.");
    }
    return wanted;
  }

  /** Jars and folders that may hold the resource: what the loader finds, then all that it lists. */
  private static Set<Path> classPath(String wanted, ClassLoader classLoader) throws IOException {
    Set<Path> places = new LinkedHashSet<>();
    for (ClassLoader loader = classLoader; loader != null; loader = loader.getParent()) {
      if (loader instanceof URLClassLoader urls) {
        // Flink's safety-net wrapper answers with the URLs of the loader it wraps.
        for (URL url : urls.getURLs()) {
          addFile(url.toString(), places);
        }
      }
    }
    Enumeration<URL> found = classLoader.getResources(wanted);
    while (found.hasMoreElements()) {
      String url = found.nextElement().toString();
      if (url.startsWith("jar:")) {
        addFile(url.substring("jar:".length(), url.lastIndexOf("!/")), places);
      } else if (url.endsWith("/" + wanted) || url.endsWith("/" + wanted + "/")) {
        addFile(url.substring(0, url.lastIndexOf("/" + wanted) + 1), places);
      }
    }
    // The application class loader does not tell its URLs.
    for (String entry : System.getProperty("java.class.path", "").split(File.pathSeparator)) {
      if (!entry.isEmpty()) {
        addIfThere(Path.of(entry), places);
      }
    }
    return places;
  }

  private static void addFile(String url, Set<Path> places) throws IOException {
    if (!url.startsWith("file:")) {
      return;
    }
    try {
      addIfThere(Path.of(new URI(url)), places);
    } catch (URISyntaxException | IllegalArgumentException e) {
      throw new IOException("The class path entry " + url + " cannot be read as a path.", e);
    }
  }

  private static void addIfThere(Path path, Set<Path> places) throws IOException {
    if (Files.exists(path)) {
      places.add(path.toRealPath());
    }
  }

  private static boolean copyFromFolder(Path source, Path copy) throws IOException {
    if (Files.isRegularFile(source)) {
      Files.createDirectories(copy.getParent());
      Files.copy(source, copy);
      return true;
    }
    if (!Files.isDirectory(source)) {
      return false;
    }
    Files.createDirectories(copy);
    try (Stream<Path> files = Files.walk(source)) {
      for (Path file : (Iterable<Path>) files.filter(Files::isRegularFile)::iterator) {
        Path to = copy.resolve(source.relativize(file).toString());
        Files.createDirectories(to.getParent());
        Files.copy(file, to);
      }
    }
    return true;
  }

  private static boolean copyFromJar(Path jar, String wanted, Path copy) throws IOException {
    try (ZipFile zip = new ZipFile(jar.toFile())) {
      ZipEntry single = zip.getEntry(wanted);
      if (single != null && !single.isDirectory()) {
        write(zip, single, copy);
        return true;
      }
      boolean found = false;
      String prefix = wanted + "/";
      for (Enumeration<? extends ZipEntry> entries = zip.entries(); entries.hasMoreElements(); ) {
        ZipEntry entry = entries.nextElement();
        if (!entry.getName().startsWith(prefix)) {
          continue;
        }
        Path to = inside(copy, entry.getName().substring(prefix.length()), jar);
        if (entry.isDirectory()) {
          Files.createDirectories(to);
        } else {
          write(zip, entry, to);
        }
        found = true;
      }
      return found;
    } catch (ZipException e) {
      // Not every file on a class path is an archive.
      return false;
    }
  }

  /** Refuses entry names that would leave the copy's folder. */
  private static Path inside(Path copy, String name, Path jar) throws IOException {
    Path to = copy.resolve(name).normalize();
    if (!to.startsWith(copy) || name.contains("\\")) {
      throw new IOException(
          "The jar " + jar + " has the entry '" + name + "', which points out of its folder.");
    }
    return to;
  }

  private static void write(ZipFile zip, ZipEntry entry, Path to) throws IOException {
    Files.createDirectories(to.getParent());
    try (InputStream content = zip.getInputStream(entry)) {
      Files.copy(content, to);
    }
  }

  /** Jars of the job first; Flink's own are many and say nothing. */
  private static String describe(Collection<Path> places) {
    int shown = 20;
    List<String> names = places.stream().limit(shown).map(Path::toString).toList();
    String more = places.size() > shown ? " and " + (places.size() - shown) + " more" : "";
    return names.isEmpty() ? "no jar at all" : String.join(", ", names) + more;
  }
}
