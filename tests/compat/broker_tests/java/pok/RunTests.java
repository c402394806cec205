package pok;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import org.testng.IAnnotationTransformer;
import org.testng.IConfigurationListener;
import org.testng.ITestListener;
import org.testng.ITestResult;
import org.testng.TestNG;
import org.testng.annotations.ITestAnnotation;
import org.testng.xml.XmlSuite;

/** Runs the class of tests of its first argument, and writes a line of JSON for each run of a method into its second. */
public final class RunTests implements ITestListener, IConfigurationListener, IAnnotationTransformer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int MOST_TOLD = 4000;
    private final Writer sink;
    private final long timeoutMs;
    private String lastSetup = "";

    private RunTests(Writer sink, long timeoutMs) {
        this.sink = sink;
        this.timeoutMs = timeoutMs;
    }

    public static void main(String[] arguments) throws Exception {
        try (Writer sink = Files.newBufferedWriter(Path.of(arguments[1]))) {
            RunTests listener = new RunTests(sink, Long.parseLong(arguments[2]));
            TestNG testng = new TestNG(false);
            testng.setUseDefaultListeners(false);
            testng.setTestClasses(new Class<?>[] {Class.forName(arguments[0])});
            testng.setConfigFailurePolicy(XmlSuite.FailurePolicy.CONTINUE);
            testng.addListener(listener);
            testng.run();
        }
        Runtime.getRuntime().halt(0);
    }

    /** A test without a limit of its own gets ours, and no test's failure is tried again. */
    @Override
    @SuppressWarnings("rawtypes")
    public void transform(ITestAnnotation test, Class type, Constructor constructor, Method method) {
        if (test.getTimeOut() == 0) {
            test.setTimeOut(timeoutMs);
        }
    }

    @Override
    public void onConfigurationFailure(ITestResult result) {
        lastSetup = result.getMethod().getMethodName() + ": " + chain(result.getThrowable());
        if (result.getMethod().isAfterMethodConfiguration()) {
            World.tidy();
        }
    }

    @Override
    public void onTestStart(ITestResult result) {
        Inside.asked();
    }

    @Override
    public void onTestSuccess(ITestResult result) {
        write(result, true, "");
    }

    @Override
    public void onTestFailure(ITestResult result) {
        write(result, false, chain(result.getThrowable()));
    }

    @Override
    public void onTestFailedWithTimeout(ITestResult result) {
        onTestFailure(result);
    }

    @Override
    public void onTestSkipped(ITestResult result) {
        Throwable thrown = result.getThrowable();
        write(result, false, "not begun: " + lastSetup + (thrown == null ? "" : " " + chain(thrown)));
    }

    private void write(ITestResult result, boolean passed, String told) {
        String asked = Inside.asked();
        String all = asked.isEmpty() || passed ? told : told + " [inside of a broker: " + asked + "]";
        try {
            sink.write(JSON.writeValueAsString(Map.of(
                    "method", result.getMethod().getMethodName(),
                    "passed", passed,
                    "ms", result.getEndMillis() - result.getStartMillis(),
                    "told", all.length() > MOST_TOLD ? all.substring(0, MOST_TOLD) : all)) + "\n");
            sink.flush();
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }

    private static String chain(Throwable thrown) {
        StringBuilder said = new StringBuilder();
        for (Throwable each = thrown; each != null; each = each.getCause()) {
            StackTraceElement at = where(each);
            said.append(said.length() == 0 ? "" : " <- ").append(each).append(at == null ? "" : " at " + at);
        }
        return said.toString().replaceAll("\\s+", " ");
    }

    /** The innermost place in their tests or our base. */
    private static StackTraceElement where(Throwable thrown) {
        for (StackTraceElement each : thrown.getStackTrace()) {
            if (each.getFileName() != null && each.getFileName().matches(".*(Test|Base)\\.java")) {
                return each;
            }
        }
        return null;
    }
}
