package org.flinkskills.bridge;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.api.Test;

class FramesTest {

  @Test
  void aFrameHasTheBytesOfTheProtocol() {
    byte[] frame = new Frames.Writer(0x83).u32(1).u64(0x1_0000_0002L).u8(3).str("é").frame();
    assertEquals(
        "00000014" + "83" + "00000001" + "0000000100000002" + "03" + "00000002c3a9",
        HexFormat.of().formatHex(frame));
  }

  @Test
  void framesComeOutWhateverThePiecesTheyArriveIn() throws IOException {
    ByteArrayOutputStream stream = new ByteArrayOutputStream();
    byte[] large = new byte[200_000];
    Arrays.fill(large, (byte) 7);
    stream.write(new Frames.Writer(1).str("a").frame());
    stream.write(new Frames.Writer(2).bytes(large).frame());
    stream.write(Frames.cancel(9));
    stream.write(new Frames.Writer(3).list(List.of(new byte[] {1}, new byte[0])).frame());
    for (int piece : new int[] {1, 3, 1000, 70_000, 1_000_000}) {
      List<Frames.Frame> frames = readAll(stream.toByteArray(), piece);
      assertEquals(4, frames.size(), "pieces of " + piece);
      assertEquals("a", frames.get(0).str());
      assertArrayEquals(large, frames.get(1).bytes());
      assertEquals(9, frames.get(2).u32());
      List<byte[]> items = frames.get(3).list();
      assertArrayEquals(new byte[] {1}, items.get(0));
      assertEquals(0, items.get(1).length);
    }
  }

  @Test
  void allThatIsAvailableComesWithOneRead() throws IOException {
    ByteArrayOutputStream stream = new ByteArrayOutputStream();
    for (int i = 0; i < 100; i++) {
      stream.write(Frames.cancel(i));
    }
    List<Frames.Frame> frames = new ArrayList<>();
    assertTrue(new Frames.Parser().read(new ByteArrayInputStream(stream.toByteArray()), frames));
    assertEquals(100, frames.size());
  }

  @Test
  void aLengthThatCannotBeIsRefused() {
    for (String length : List.of("00000000", "10000001", "ffffffff")) {
      InputStream in = new ByteArrayInputStream(HexFormat.of().parseHex(length + "01"));
      Frames.FrameException failure =
          assertThrows(
              Frames.FrameException.class, () -> new Frames.Parser().read(in, new ArrayList<>()));
      assertTrue(failure.getMessage().contains("standard output"), failure.getMessage());
    }
  }

  @Test
  void aFrameThatIsCutOffIsRefused() {
    Frames.Frame frame = new Frames.Frame(HexFormat.of().parseHex("84" + "00000005" + "0102"));
    Frames.FrameException failure = assertThrows(Frames.FrameException.class, frame::bytes);
    assertTrue(failure.getMessage().contains("0x84"), failure.getMessage());
    Frames.Frame list = new Frames.Frame(HexFormat.of().parseHex("84" + "7fffffff" + "0102"));
    assertThrows(Frames.FrameException.class, list::list);
  }

  @Test
  void aFrameThatIsTooLongIsNotBuilt() {
    Frames.Writer writer = new Frames.Writer(2);
    byte[] half = new byte[Frames.MAX_FRAME_BYTES / 2];
    writer.bytes(half);
    IllegalStateException failure =
        assertThrows(IllegalStateException.class, () -> writer.bytes(half));
    assertTrue(failure.getMessage().contains("limit"), failure.getMessage());
  }

  private static List<Frames.Frame> readAll(byte[] bytes, int piece) throws IOException {
    InputStream in =
        new ByteArrayInputStream(bytes) {
          @Override
          public synchronized int read(byte[] target, int offset, int length) {
            return super.read(target, offset, Math.min(piece, length));
          }
        };
    Frames.Parser parser = new Frames.Parser();
    List<Frames.Frame> frames = new ArrayList<>();
    while (parser.read(in, frames)) {
      assertFalse(frames.size() > 4);
    }
    return frames;
  }
}
