package org.flinkskills.bridge.table;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Random;
import org.flinkskills.bridge.frames.FrameWriter;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Canonical strings of keys that are evaluated without Python: the same as in Python. */
class CanonicalKeyTest {
  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {
        "x\\ud800y | \"x\\ud800y\"",
        "\\udc00 | \"\\udc00\"",
        "\\ud83d\\ude00 | \"\uD83D\uDE00\"",
        "\\ude00\\ud83d | \"\\ude00\\ud83d\"",
      })
  void loneSurrogatesAreEscaped(String key, String text) {
    assertEquals(text, CanonicalKey.of(unescaped(key)));
  }

  @Test
  void differentTextsOfKeysStayDifferentAsBytes() {
    Random random = new Random(7);
    String alphabet = "x?\uD800\uDC00\uD83D\uDE00\uFFFD\"\\u";
    Map<String, String> keys = new HashMap<>();
    for (int i = 0; i < 20_000; i++) {
      StringBuilder key = new StringBuilder();
      for (int length = random.nextInt(5); length > 0; length--) {
        key.append(alphabet.charAt(random.nextInt(alphabet.length())));
      }
      String text = CanonicalKey.of(key.toString());
      byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
      assertEquals(text, new String(bytes, StandardCharsets.UTF_8));
      String before = keys.put(text, key.toString());
      assertTrue(before == null || before.equals(key.toString()), text);
    }
  }

  /** Keys of lines, for example, are sent unchanged. */
  @Test
  void differentTextsStayDifferentInFrames() {
    Random random = new Random(7);
    String alphabet = "x?\uD800\uDC00\uD83D\uDE00\uFFFD";
    Map<String, String> keys = new HashMap<>();
    for (int i = 0; i < 20_000; i++) {
      StringBuilder key = new StringBuilder();
      for (int length = random.nextInt(5); length > 0; length--) {
        key.append(alphabet.charAt(random.nextInt(alphabet.length())));
      }
      String frame = HexFormat.of().formatHex(new FrameWriter(1).str(key.toString()).frame());
      String before = keys.put(frame, key.toString());
      assertTrue(before == null || before.equals(key.toString()), frame);
    }
  }

  private static String unescaped(String text) {
    StringBuilder found = new StringBuilder();
    for (int i = 0; i < text.length(); i++) {
      if (text.startsWith("\\u", i)) {
        found.append((char) Integer.parseInt(text.substring(i + 2, i + 6), 16));
        i += 5;
      } else {
        found.append(text.charAt(i));
      }
    }
    return found.toString();
  }
}
