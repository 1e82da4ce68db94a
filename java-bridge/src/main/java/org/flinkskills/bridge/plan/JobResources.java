package org.flinkskills.bridge.plan;

import java.io.BufferedOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.Serializable;
import java.net.URI;
import java.net.URISyntaxException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Enumeration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Stream;
import java.util.zip.CRC32;
import java.util.zip.ZipEntry;
import java.util.zip.ZipException;
import java.util.zip.ZipFile;
import java.util.zip.ZipOutputStream;
import org.flinkskills.bridge.AgentOpenException;
import org.flinkskills.bridge.AgentRejectedException;

/**
 * Copier of resources out of the job's jars: a directory ({@code skills}) or a file ({@code
 * skills.zip}).
 *
 * <p>The copier reads the entries of each jar. Many jars have no entries for their directories, so
 * the class loader does not find a directory. If several jars have the resource, there is one copy
 * of each, in class path order.
 *
 * <p>A directory becomes a zip whose bytes depend only on the content: the workers insert it into
 * their store, at a path that depends on the content, and check its entries as those of any
 * archive. The name of a jar's entry is never a path of a written file.
 */
public final class JobResources {
  private static final LocalDateTime NO_TIME = LocalDateTime.of(1980, 1, 1, 0, 0);

  private final Path target;
  private final Map<String, List<String>> copies = new HashMap<>();

  /**
   * @param target the directory of the copies
   */
  public JobResources(Path target) {
    this.target = target;
  }

  /**
   * Limits of the copies out of one jar.
   *
   * @param entries files
   * @param fileBytes bytes of one file
   * @param totalBytes bytes of all files
   */
  public record Limits(int entries, long fileBytes, long totalBytes) implements Serializable {
    public static Limits defaults() {
      return new Limits(10_000, 64L << 20, 256L << 20);
    }
  }

  /** Copy each resource one time. Return the paths of the copies of each resource. */
  public synchronized Map<String, List<String>> copy(
      List<String> names, Limits limits, ClassLoader classLoader)
      throws IOException, AgentOpenException {
    Map<String, List<String>> paths = new LinkedHashMap<>();
    for (String name : names) {
      if (!copies.containsKey(name)) {
        copies.put(name, copy(name, copies.size(), classLoader, target, limits));
      }
      paths.put(name, copies.get(name));
    }
    return paths;
  }

  /**
   * Copy the resource to {@code <target>/<number>-<i>/<last part of its name>}, a directory with
   * {@code .zip} at the end.
   *
   * @param number distinguishes the resources of a job
   * @return the paths of the copies, in class path order
   * @throws AgentRejectedException if no jar has the resource, or a worker could not use the
   *     resource of a jar
   */
  public static List<String> copy(
      String name, int number, ClassLoader classLoader, Path target, Limits limits)
      throws IOException, AgentOpenException {
    String entryName = normalize(name);
    Set<Path> classPath = classPath(entryName, classLoader);
    List<String> copies = new ArrayList<>();
    for (Path location : classPath) {
      Path folder = target.resolve(number + "-" + copies.size());
      Path copy = new Copier(name, entryName, location, limits).copyTo(folder);
      if (copy != null) {
        copies.add(copy.toString());
      }
    }
    if (copies.isEmpty()) {
      throw new AgentRejectedException(
          String.format(
              "The skill resource '%s' is in none of the job's jars. Searched: %s. Add it at the"
                  + " top level of a jar of the job (flink run -j or --jarfile, env.add_jars(...),"
                  + " pipeline.jars).",
              name, describe(classPath)));
    }
    return copies;
  }

  private static String normalize(String name) throws AgentOpenException {
    String entryName = name;
    while (entryName.endsWith("/")) {
      entryName = entryName.substring(0, entryName.length() - 1);
    }
    boolean climbs = List.of(entryName.split("/")).contains("..");
    if (entryName.isEmpty() || entryName.startsWith("/") || entryName.contains("\\") || climbs) {
      throw new AgentRejectedException(
          String.format(
              "The skill resource '%s' is not a path inside a jar. Write, for example, 'skills' or"
                  + " 'conf/skills.zip'.",
              name));
    }
    return entryName;
  }

  /**
   * Return the jars and directories that may contain the resource.
   *
   * <p>A directory must be listed in the class path. Flink's scripts add empty entries to the class
   * path, which mean the working directory of the process, and files of this directory are not a
   * part of the job.
   */
  private static Set<Path> classPath(String entryName, ClassLoader classLoader) throws IOException {
    Set<Path> locations = new LinkedHashSet<>();
    for (ClassLoader loader = classLoader; loader != null; loader = loader.getParent()) {
      if (loader instanceof URLClassLoader urls) {
        // Flink's safety-net wrapper returns the URLs of its loader.
        for (URL url : urls.getURLs()) {
          addFile(url.toString(), locations);
        }
      }
    }
    Enumeration<URL> found = classLoader.getResources(entryName);
    while (found.hasMoreElements()) {
      String url = found.nextElement().toString();
      if (url.startsWith("jar:")) {
        addFile(url.substring("jar:".length(), url.lastIndexOf("!/")), locations);
      }
    }
    // The application class loader does not provide its URLs.
    for (String entry : System.getProperty("java.class.path", "").split(File.pathSeparator)) {
      if (!entry.isEmpty()) {
        addIfExists(Path.of(entry), locations);
      }
    }
    return locations;
  }

  private static void addFile(String url, Set<Path> locations) throws IOException {
    if (!url.startsWith("file:")) {
      return;
    }
    try {
      URI uri = new URI(url);
      // Flink lists jars of usrlib as "file:usrlib/name.jar", from the working directory on.
      addIfExists(uri.isOpaque() ? Path.of(uri.getSchemeSpecificPart()) : Path.of(uri), locations);
    } catch (URISyntaxException | IllegalArgumentException e) {
      throw new IOException(String.format("The class path entry %s is not a valid path.", url), e);
    }
  }

  private static void addIfExists(Path path, Set<Path> locations) throws IOException {
    if (Files.exists(path)) {
      locations.add(path.toRealPath());
    }
  }

  /** Content of one file. The copier reads it two times. */
  private interface Content {
    InputStream open() throws IOException;
  }

  /** Copier of a resource out of one entry of the class path. */
  private static final class Copier {
    private final String name;
    private final String entryName;
    private final Path location;
    private final Limits limits;
    private final String lastPart;

    /** Files of a directory resource by their names in the copy, sorted. */
    private final TreeMap<String, Content> files = new TreeMap<>();

    private long total;

    Copier(String name, String entryName, Path location, Limits limits) {
      this.name = name;
      this.entryName = entryName;
      this.location = location;
      this.limits = limits;
      this.lastPart = entryName.substring(entryName.lastIndexOf('/') + 1);
    }

    /** Copy the resource below that folder. Return null if the resource is not in this entry. */
    Path copyTo(Path folder) throws IOException, AgentRejectedException {
      if (Files.isDirectory(location)) {
        return copyFromFolder(folder);
      }
      try (ZipFile jar = open()) {
        return jar == null ? null : copyFromJar(jar, folder);
      } catch (ZipException e) {
        throw failure("the jar is damaged: " + e.getMessage());
      }
    }

    /** Return null for a file that is not an archive, because every class path has some of them. */
    private ZipFile open() throws IOException {
      try {
        return new ZipFile(location.toFile());
      } catch (ZipException e) {
        return null;
      }
    }

    private Path copyFromFolder(Path folder) throws IOException, AgentRejectedException {
      Path source = location.resolve(entryName);
      if (Files.isRegularFile(source)) {
        return copyFile(() -> Files.newInputStream(source), folder);
      }
      if (!Files.isDirectory(source)) {
        return null;
      }
      try (Stream<Path> walk = Files.walk(source)) {
        for (Path file : (Iterable<Path>) walk.filter(Files::isRegularFile)::iterator) {
          add(source.relativize(file).toString(), () -> Files.newInputStream(file));
        }
      }
      return writeZip(folder);
    }

    private Path copyFromJar(ZipFile jar, Path folder) throws IOException, AgentRejectedException {
      ZipEntry single = jar.getEntry(entryName);
      if (single != null && !single.isDirectory()) {
        return copyFile(() -> jar.getInputStream(single), folder);
      }
      String prefix = entryName + "/";
      for (Enumeration<? extends ZipEntry> all = jar.entries(); all.hasMoreElements(); ) {
        ZipEntry entry = all.nextElement();
        if (entry.getName().startsWith(prefix) && !entry.isDirectory()) {
          add(entry.getName().substring(prefix.length()), () -> jar.getInputStream(entry));
        }
      }
      return writeZip(folder);
    }

    private void add(String relative, Content content) throws AgentRejectedException {
      if (files.put(lastPart + "/" + relative, content) != null) {
        throw failure("duplicate entry '" + relative + "'");
      }
      if (files.size() > limits.entries()) {
        throw failure(
            "the resource has more than " + limits.entries() + " files (skills.limits.entries)");
      }
    }

    private Path copyFile(Content content, Path folder) throws IOException, AgentRejectedException {
      Files.createDirectories(folder);
      Path copy = folder.resolve(lastPart);
      try (OutputStream out = Files.newOutputStream(copy)) {
        copyBounded(content, out, null);
      }
      return copy;
    }

    private Path writeZip(Path folder) throws IOException, AgentRejectedException {
      if (files.isEmpty()) {
        return null;
      }
      Files.createDirectories(folder);
      Path copy = folder.resolve(lastPart + ".zip");
      try (OutputStream out = new BufferedOutputStream(Files.newOutputStream(copy));
          ZipOutputStream zip = new ZipOutputStream(out)) {
        for (Map.Entry<String, Content> file : files.entrySet()) {
          // Stored and without a time: a compressor's output depends on its version.
          CRC32 checksum = new CRC32();
          long size = copyBounded(file.getValue(), OutputStream.nullOutputStream(), checksum);
          ZipEntry entry = new ZipEntry(file.getKey());
          entry.setTimeLocal(NO_TIME);
          entry.setMethod(ZipEntry.STORED);
          entry.setSize(size);
          entry.setCrc(checksum.getValue());
          zip.putNextEntry(entry);
          try (InputStream in = file.getValue().open()) {
            in.transferTo(zip);
          }
          zip.closeEntry();
        }
      }
      return copy;
    }

    /** Copy one file and count its bytes. The size in a jar's entry is not reliable. */
    private long copyBounded(Content content, OutputStream out, CRC32 checksum)
        throws IOException, AgentRejectedException {
      long size = 0;
      byte[] buffer = new byte[64 * 1024];
      try (InputStream in = content.open()) {
        for (int count; (count = in.read(buffer)) > 0; ) {
          size += count;
          total += count;
          if (size > limits.fileBytes()) {
            throw failure(
                "one of its files has more than "
                    + limits.fileBytes()
                    + " bytes (skills.limits.file)");
          }
          if (total > limits.totalBytes()) {
            throw failure(
                "the files have more than "
                    + limits.totalBytes()
                    + " bytes in total (skills.limits.total)");
          }
          out.write(buffer, 0, count);
          if (checksum != null) {
            checksum.update(buffer, 0, count);
          }
        }
      }
      return size;
    }

    private AgentRejectedException failure(String problem) {
      return new AgentRejectedException(
          String.format(
              "Copying the skill resource '%s' failed: %s (%s).", name, problem, location));
    }
  }

  /** Return the first entries, which are the jars of the job. Flink's own jars do not help. */
  private static String describe(Collection<Path> locations) {
    int shown = 20;
    List<String> names = locations.stream().limit(shown).map(Path::toString).toList();
    String more = locations.size() > shown ? " and " + (locations.size() - shown) + " more" : "";
    return names.isEmpty() ? "(no jars)" : String.join(", ", names) + more;
  }
}
