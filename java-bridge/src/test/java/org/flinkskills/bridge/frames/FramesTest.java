package org.flinkskills.bridge.frames;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.api.Test;

class FramesTest {

  private static final int LARGE = 32 * 1024 * 1024;

  @Test
  void aFrameHasTheBytesOfTheProtocol() {
    byte[] frame = new FrameWriter(0x83).u32(1).u64(0x1_0000_0002L).u8(3).str("é").frame();
    assertEquals(
        "00000014" + "83" + "00000001" + "0000000100000002" + "03" + "00000002c3a9",
        HexFormat.of().formatHex(frame));
  }

  @Test
  void aLoneSurrogateIsWrittenAsPythonReadsIt() {
    String text = "a\uD800\uD83D\uDE00\uDC00?";
    String hex = HexFormat.of().formatHex(new FrameWriter(1).str(text).frame());
    assertEquals("0000000c" + "61" + "eda080" + "f09f9880" + "edb080" + "3f", hex.substring(10));
  }

  @Test
  void framesComeOutWhateverThePiecesTheyArriveIn() throws IOException {
    ByteArrayOutputStream stream = new ByteArrayOutputStream();
    byte[] large = new byte[200_000];
    Arrays.fill(large, (byte) 7);
    stream.write(new FrameWriter(1).str("a").frame());
    stream.write(new FrameWriter(2).bytes(large).frame());
    stream.write(Frames.cancel(9));
    stream.write(new FrameWriter(3).list(List.of(new byte[] {1}, new byte[0])).frame());
    for (int piece : new int[] {1, 3, 1000, 70_000, 1_000_000}) {
      List<Frame> frames = readAll(stream.toByteArray(), piece);
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
    List<Frame> frames = new ArrayList<>();
    assertTrue(new FrameParser().read(new ByteArrayInputStream(stream.toByteArray()), frames));
    assertEquals(100, frames.size());
  }

  @Test
  void aLengthThatCannotBeIsRefused() {
    for (String length : List.of("00000000", "10000001", "ffffffff")) {
      InputStream in = new ByteArrayInputStream(HexFormat.of().parseHex(length + "01"));
      FrameException failure =
          assertThrows(FrameException.class, () -> new FrameParser().read(in, new ArrayList<>()));
      assertTrue(failure.getMessage().contains("standard output"), failure.getMessage());
    }
  }

  @Test
  void aFrameThatIsCutOffIsRefused() {
    Frame frame = new Frame(HexFormat.of().parseHex("84" + "00000005" + "0102"));
    FrameException failure = assertThrows(FrameException.class, frame::bytes);
    assertTrue(failure.getMessage().contains("0x84"), failure.getMessage());
    Frame list = new Frame(HexFormat.of().parseHex("84" + "7fffffff" + "0102"));
    assertThrows(FrameException.class, list::list);
  }

  @Test
  void aFrameThatIsTooLongIsNotBuilt() {
    FrameWriter writer = new FrameWriter(2);
    byte[] half = new byte[Frames.MAX_FRAME_BYTES / 2];
    writer.bytes(half);
    IllegalStateException failure =
        assertThrows(IllegalStateException.class, () -> writer.bytes(half));
    assertTrue(failure.getMessage().contains("limit"), failure.getMessage());
  }

  @Test
  void aLargeFrameIsCopiedOnceOnItsWayIn() throws IOException {
    byte[] entry = new byte[LARGE];
    byte[] stream = new FrameWriter(Frames.STEP, 4L + LARGE).bytes(entry).frame();
    List<Frame> frames = new ArrayList<>();
    long before = allocated();
    FrameParser parser = new FrameParser();
    InputStream in = new ByteArrayInputStream(stream);
    while (frames.isEmpty()) {
      assertTrue(parser.read(in, frames));
    }
    assertEquals(LARGE, frames.get(0).bytes().length);
    long copies = (allocated() - before) / LARGE;
    assertTrue(copies <= 2, "the frame and its content, not " + copies + " times its size");
  }

  @Test
  void aLargeFrameIsCopiedOnceOnItsWayOut() throws IOException {
    List<byte[]> journal = List.of(new byte[LARGE / 2], new byte[LARGE / 2]);
    long before = allocated();
    byte[] frame = Frames.session(1, 2, 3, journal);
    FrameBatch batch = new FrameBatch(OutputStream.nullOutputStream());
    batch.add(frame);
    batch.flush();
    long copies = (allocated() - before) / LARGE;
    assertTrue(copies <= 1, "the frame, not " + copies + " times its size");
  }

  private static long allocated() {
    return ((com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean())
        .getThreadAllocatedBytes(Thread.currentThread().getId());
  }

  @Test
  void aBatchKeepsTheOrderAndTheBytes() throws IOException {
    ByteArrayOutputStream expected = new ByteArrayOutputStream();
    ByteArrayOutputStream written = new ByteArrayOutputStream();
    FrameBatch batch = new FrameBatch(written);
    for (int size : new int[] {0, 10, 65_000, 300, 65_536, 65_537, 1, 200_000, 5}) {
      byte[] frame = new FrameWriter(2).bytes(new byte[size]).frame();
      frame[frame.length - 1] = (byte) size;
      expected.write(frame);
      batch.add(frame);
    }
    batch.flush();
    assertArrayEquals(expected.toByteArray(), written.toByteArray());
  }

  private static List<Frame> readAll(byte[] bytes, int piece) throws IOException {
    InputStream in =
        new ByteArrayInputStream(bytes) {
          @Override
          public synchronized int read(byte[] target, int offset, int length) {
            return super.read(target, offset, Math.min(piece, length));
          }
        };
    FrameParser parser = new FrameParser();
    List<Frame> frames = new ArrayList<>();
    while (parser.read(in, frames)) {
      assertFalse(frames.size() > 4);
    }
    return frames;
  }
}
